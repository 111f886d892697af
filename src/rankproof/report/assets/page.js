"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Light and dark: the system's choice, until somebody chooses.
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme || (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });

  // What a mark says, at the pointer or the focus.
  const tip = document.getElementById("tip");
  const tell = (mark, x, y) => {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 12, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(8, y - box.height - 12) + "px";
  };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    if (mark) tell(mark, event.clientX, event.clientY);
    else tip.hidden = true;
  });
  document.addEventListener("focusin", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    if (!mark) { tip.hidden = true; return; }
    const box = mark.getBoundingClientRect();
    tell(mark, box.right, box.top);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // A print hides nothing.
  const shut = () => all("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => { opened = shut(); for (const d of opened) d.open = true; });
  addEventListener("afterprint", () => { for (const d of opened) d.open = false; });

  // Legends switch their series.
  for (const legend of all(".legend")) {
    const chart = legend.closest("figure").querySelector(".chart");
    for (const button of all("button", legend)) {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        for (const mark of all(`[data-series="${button.dataset.toggle}"]`, chart)) {
          mark.classList.toggle("off", !on);
        }
      });
    }
  }

  // Tables sort by a column, and long ones filter.
  const value = (row, at) => {
    const cell = row.cells[at];
    if (cell.dataset.value === undefined) return cell.textContent;
    return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
  };
  for (const table of all("table.sortable")) {
    const heads = all("thead th", table);
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [value(a, at), value(b, at)];
          const order = typeof x === "number" && typeof y === "number"
            ? x - y : String(x).localeCompare(String(y));
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
    if (table.tBodies[0].rows.length > 8) {
      const input = document.createElement("input");
      input.type = "search";
      input.className = "filter";
      input.placeholder = "Filter rows";
      input.setAttribute("aria-label", "Filter the rows of the table below");
      table.parentElement.before(input);
      input.addEventListener("input", () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const row of table.tBodies[0].rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
      });
    }
  }

  // The best configuration under a latency.
  for (const chooser of all(".chooser")) {
    const input = chooser.querySelector("input[type=range]");
    const points = all(".point", chooser);
    const line = chooser.querySelector(".sla");
    const words = chooser.querySelector(".chosen");
    const said = chooser.querySelector("output");
    const [least, most] = [Number(input.dataset.least), Number(input.dataset.most)];
    const choose = () => {
      const share = Number(input.value) / 1000;
      const limit = least * Math.pow(most / least, share);
      said.textContent = `${limit < 10 ? limit.toFixed(1) : Math.round(limit)} ms`;
      let best = null;
      for (const point of points) {
        const fits = Number(point.dataset.x) <= limit * (1 + 1e-9);
        point.classList.toggle("out", !fits);
        point.classList.remove("chosen");
        if (!fits) continue;
        const [y, cost] = [Number(point.dataset.y), Number(point.dataset.cost)];
        if (!best || y > best.y || (y === best.y && cost < best.cost)) best = { point, y, cost };
      }
      if (best) best.point.classList.add("chosen");
      words.textContent = best
        ? `${best.point.dataset.name}: ${words.dataset.by} ${best.y.toFixed(4)} at ` +
          `${Number(best.point.dataset.x).toFixed(1)} ms, $${best.cost.toFixed(2)} per 1,000 queries`
        : "No configuration is that fast.";
      const { low, high, start, end } = line.dataset;
      const at = Math.log(limit / low) / Math.log(high / low);
      const x = Number(start) + at * (Number(end) - Number(start));
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      line.style.visibility = "visible";
    };
    input.addEventListener("input", choose);
    choose();
  }
})();
