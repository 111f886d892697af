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

  // What a mark says, at the pointer or the focus; of a chart, what it says to a browser.
  for (const title of all("svg * > title")) title.parentElement.dataset.tip = title.textContent;
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
    const text = cell.textContent;
    if (!cell.classList.contains("num")) return text;
    return text === "–" ? -Infinity : Number(text.replaceAll(",", "").replace("−", "-"));
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

  // The choice within limits: the rules are those of `rankproof recommend`.
  for (const section of all(".decision")) {
    const data = JSON.parse(section.querySelector(".candidates").textContent);
    const rows = data.quality.map((quality, at) => ({
      at, quality, low: data.low[at], high: data.high[at], surely: data.surely[at], ms: data.latency[at], jitter: data.jitter[at],
      usd: data.cost[at], mb: data.memory[at], prompt: data.prompt_k[at], k: data.k[at],
      far: data.among_network[at], stages: data.stages[at], unpriced: data.unpriced[at], place: data.place[at],
      slow: [data.p95_low[at], data.p95_high[at]],
      judged: data.judged[at], lowest: data.lowest[at], highest: data.highest[at],
      full: data.full[at], short: data.short[at],
    }));
    const LEVEL = 1e-12;
    const last = (value) => value ?? Infinity;
    const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
    const by = (...keys) => (a, b) => {
      for (const key of keys) if (key(a) !== key(b)) return key(a) < key(b) ? -1 : 1;
      return a.at - b.at;
    };
    const sides = { ms: (r) => r.ms, usd: (r) => r.usd, mb: (r) => r.mb ?? 0, quality: (r) => -r.surely };
    const past = (row, limits) => {
      let worst = -Infinity;
      for (const [axis, limit] of Object.entries(limits)) {
        if (limit === null) continue;
        const over = sides[axis](row) - (axis === "quality" ? -limit : limit);
        worst = Math.max(worst, limit > 0 ? over / limit : over);
      }
      return worst;
    };
    // Whether a is no worse than b in anything, give or take noise, and clearly better in something.
    const dominates = (a, b) => {
      if (a.unpriced !== b.unpriced || a.quality < b.quality) return false;
      const slack = a.far > 0 ? Math.max(b.jitter, b.far) : b.jitter;
      const exact = [[a.usd, b.usd], [a.mb ?? 0, b.mb ?? 0], [a.prompt ?? 0, b.prompt ?? 0]];
      if (a.ms > b.ms + slack || exact.some(([x, y]) => x > y)) return false;
      const clear = (a.low ?? a.quality) > (b.high ?? b.quality);
      return a.ms < b.ms - b.jitter || clear || exact.some(([x, y]) => x < y);
    };
    const fastest = (some) => {
      const first = [...some].sort(by((r) => r.ms, (r) => r.jitter))[0];
      const noise = (r) => Math.max(r.jitter, first.jitter, first.far > 0 ? r.far : 0);
      const level = some.filter((r) => r.ms - first.ms <= noise(r));
      return level.sort(by((r) => r.usd, (r) => last(r.prompt), (r) => last(r.stages), (r) => last(r.k), (r) => r.ms, (r) => r.place))[0];
    };
    const best = (some) => {
      const most = -least(some.map((r) => -r.quality));
      const top = some.filter((r) => r.quality >= most - LEVEL);
      const prompt = least(top.map((r) => last(r.prompt)));
      return fastest(prompt === Infinity ? top : top.filter((r) => r.prompt === prompt));
    };
    const beatenBy = rows.map((b) => rows.filter((a) => dominates(a, b)).map((a) => a.at));
    const pick = (limits) => {
      const over = rows.map((r) => past(r, limits));
      const within = rows.filter((r) => over[r.at] <= 0);
      if (within.length) {
        const sound = within.filter((b) => !beatenBy[b.at].some((at) => over[at] <= 0));
        return { row: (limits.quality === null ? best : fastest)(sound), within };
      }
      const nearest = least(over);
      const close = rows.filter((r) => over[r.at] === nearest);
      return { row: close.sort(by((r) => -r.quality, (r) => r.ms, (r) => r.usd))[0], within };
    };

    // What chance explains: the draws, the critical value (statistics/family.py), the intervals
    // (statistics/intervals.py) and the expected value that `recommend` has, within the limits.
    const chance = data.values && (() => {
      const codes = new Uint16Array(Uint8Array.from(atob(data.values), (c) => c.charCodeAt(0)).buffer);
      const [count, n] = [rows.length, codes.length / rows.length];
      const sums = new Float64Array(data.bags * count);
      const total = rows.map((_, c) => codes.subarray(c * n, c * n + n).reduce((a, b) => a + b, 0));
      const largestByBest = new Map(); // t² of a resample and its best row, against every row
      let drawn = null;
      const whole = (below) => { // as many whole numbers as there are questions in all bags
        let [state, half] = [BigInt(data.state), null];
        const increment = BigInt(data.increment);
        const bits = () => { // PCG64, 32 bits at a time
          if (half !== null) { const kept = half; half = null; return kept; }
          state = BigInt.asUintN(128, state * 47026247687942121848144207491837523525n + increment);
          const [mixed, turn] = [BigInt.asUintN(64, state ^ (state >> 64n)), state >> 122n];
          const out = BigInt.asUintN(64, (mixed >> turn) | (mixed << (64n - turn)));
          half = Number(out >> 32n);
          return Number(BigInt.asUintN(32, out));
        };
        return Uint16Array.from({ length: data.bags * n }, () => { // Lemire's bounded numbers
          let wide = bits() * below;
          while (wide % 2 ** 32 < (2 ** 32 - below) % below) wide = bits() * below;
          return Math.floor(wide / 2 ** 32);
        });
      };
      const draw = () => {
        drawn = whole(n);
        for (let b = 0; b < data.bags; b++) {
          for (let q = 0; q < n; q++) {
            const from = drawn[b * n + q];
            for (let c = 0; c < count; c++) sums[b * count + c] += codes[c * n + from];
          }
        }
      };
      const difference = (a, c) => Float64Array.from({ length: n }, (_, q) => codes[a * n + q] - codes[c * n + q]);
      const differing = (d) => d.reduce((k, x) => k + (x !== 0), 0);
      const claimable = (d) => differing(d) >= data.few && Math.max(...d) > Math.min(...d);
      const addSquares = (best, bags) => { // t² of the best row against every other in these bags
        for (const b of bags) largestByBest.set(b * count + best, new Float64Array(count));
        for (let c = 0; c < count; c++) {
          const d = difference(best, c);
          if (!claimable(d)) continue;
          const mean = (total[best] - total[c]) / n;
          const squares = d.map((x) => (x - mean) ** 2);
          const floor = data.floor * squares.reduce((a, x) => a + x, 0);
          for (const b of bags) {
            const sum = sums[b * count + best] - total[best] - sums[b * count + c] + total[c];
            let own = 0;
            for (let at = b * n; at < b * n + n; at++) own += squares[drawn[at]];
            largestByBest.get(b * count + best)[c] = sum * sum * (n - 1) / n / Math.max(own - sum * sum / n, floor);
          }
        }
      };
      const criticalOf = (some) => {
        let pairs = 0;
        for (let i = 0; i < some.length && pairs < 2; i++) {
          for (let j = i + 1; j < some.length && pairs < 2; j++) pairs += claimable(difference(some[i], some[j]));
        }
        if (pairs < 2) return 0;
        const [best, missing] = [new Int32Array(data.bags), new Map()];
        for (let b = 0; b < data.bags; b++) {
          const ahead = (c) => sums[b * count + c] - total[c];
          best[b] = some.reduce((high, c) => (ahead(c) > ahead(high) ? c : high), some[0]);
          if (largestByBest.has(b * count + best[b])) continue;
          missing.set(best[b], [...(missing.get(best[b]) || []), b]);
        }
        for (const [row, bags] of missing) addSquares(row, bags);
        const largest = Float64Array.from(best, (row, b) => {
          const squares = largestByBest.get(b * count + row);
          return Math.sqrt(some.reduce((most, c) => Math.max(most, squares[c]), 0));
        });
        return largest.sort()[Math.ceil(data.confidence * (data.bags - 1))];
      };
      const critical = (some) => { // of each: what is significantly worse than the best no longer counts
        const best = some.reduce((high, c) => (total[c] > total[high] ? c : high), some[0]);
        const t = (c) => {
          const d = difference(best, c), mean = (total[best] - total[c]) / n;
          const error = Math.sqrt(d.reduce((a, x) => a + (x - mean) ** 2, 0) / (n - 1) / n);
          return error > 0 ? Math.abs(mean) / error : 0;
        };
        const limits = new Map();
        for (let remaining = some; remaining.length > 1;) {
          const limit = criticalOf(remaining);
          for (const c of remaining) limits.set(c, limit);
          const left = remaining.filter((c) => c === best || t(c) <= limit);
          if (!limit || left.length === remaining.length) break;
          remaining = left;
        }
        return { best, limits };
      };
      const tail = (t) => { // of Student's t, both sides (Abramowitz and Stegun 26.7.3, 26.7.4)
        const df = n - 1, angle = Math.atan(t / Math.sqrt(df)), [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
        let [term, series] = df % 2 ? [cosine, df > 1 ? cosine : 0] : [1, 1];
        for (let k = df % 2 ? 3 : 2; k <= df - 2; k += 2) {
          term *= (k - 1) / k * cosine ** 2;
          series += term;
        }
        return 1 - (df % 2 ? 2 / Math.PI * (angle + sine * series) : sine * series);
      };
      const excludesZero = (d, limit) => { // the interval of a mean difference
        const values = d.map((x) => x / data.parts), mean = values.reduce((a, x) => a + x, 0) / n;
        const deviation = Math.sqrt(values.reduce((a, x) => a + (x - mean) ** 2, 0) / (n - 1));
        const half = Math.max(limit, data.t) * deviation / Math.sqrt(n);
        let [low, high] = [mean - half, mean + half];
        const middle = [...values].sort((a, b) => a - b)[Math.floor(n / 2)];
        const unlike = values.reduce((k, x) => k + (Math.abs(x - middle) > 1e-9), 0);
        if (unlike < data.few && 3 * unlike <= n) { // hardly a value differs from the others
          const alpha = Math.min(1 - data.confidence, limit > 0 ? tail(limit) : 1);
          const unseen = 1 - (alpha / 2) ** (1 / n);
          const ends = [mean - unseen * (mean + 1), mean + unseen * (1 - mean)];
          [low, high] = unlike ? [Math.min(low, ends[0]), Math.max(high, ends[1])] : ends;
        }
        return low > 0 || high < 0;
      };
      const level = (row, within) => { // those of the others that are not significantly different from a row
        if (!drawn) draw();
        const { best, limits } = critical(within.map((r) => r.at));
        const most = Math.max(0, ...limits.values());
        return within.map((r) => r.at).filter((c) => {
          if (c === row.at) return false;
          const d = difference(row.at, c);
          return differing(d) < data.few || !excludesZero(d, row.at === best ? limits.get(c) : most);
        });
      };
      const expected = (within) => { // of the best of these, on questions that did not choose it
        if (within.length < 2) return null;
        if (!drawn) draw();
        let [total, bags] = [0, 0];
        for (let b = 0; b < data.bags; b++) {
          const most = within.reduce((found, r) => Math.max(found, sums[b * count + r.at]), 0);
          const best = within.filter((r) => sums[b * count + r.at] === most);
          const seen = new Uint8Array(n);
          for (let at = b * n; at < b * n + n; at++) seen[drawn[at]] = 1;
          let [sum, out] = [0, 0];
          for (let q = 0; q < n; q++) if (!seen[q]) { for (const r of best) sum += codes[r.at * n + q]; out++; }
          if (out) { total += sum / out / best.length; bags++; }
        }
        return total / bags / data.parts;
      };
      return { level, expected };
    })();

    const said = {
      ms: (v) => `${v.toFixed(v < 10 ? 1 : 0)} ms`,
      usd: (v) => (v === 0 && data.free ? "–" : data.currency + v.toFixed(v === 0 || v >= 0.01 ? 2 : 4)),
      mb: (v) => (v === null ? "–" : v >= 0.1 ? `${v.toFixed(v < 10 ? 1 : 0)} MB` : `${v.toFixed(3)} MB`),
      quality: (v) => v.toFixed(3),
    };
    const flag = { ms: "--sla-ms", usd: "--budget", mb: "--memory-mb", quality: "--quality" };
    const inputs = all(".limit input", section);
    const limits = { ...data.limits };
    const ends = (low, high) => (low === high ? low : low.startsWith("-") ? `${low} to ${high}` : `${low}–${high}`);
    const told = (v) => String(Number(v.toPrecision(6)));
    const exact = { ms: (v) => `${told(v)} ms`, usd: (v) => data.currency + told(v), mb: (v) => `${told(v)} MB`, quality: told };
    const lead = (limits) => { // as Limits.words has it
      const given = ["ms", "usd", "mb"].filter((axis) => limits[axis] !== null);
      const inside = given.map((axis) => exact[axis](limits[axis]) + (axis === "usd" ? " per 1,000 queries" : ""));
      const parts = inside.length ? [`within ${inside.join(" and ")}`] : [];
      if (limits.quality !== null) parts.push(`at a quality of ${exact.quality(limits.quality)} or more`);
      return parts.join(" and ");
    };
    const raise = (value) => { // a limit of two digits that lets a value in
      const unit = Math.pow(10, Math.floor(Math.log10(value)) - 1);
      return Number((Math.ceil(value / unit - 1e-9) * unit).toPrecision(6));
    };
    const read = (input) => {
      const { axis } = input.dataset;
      const [low, high] = [Number(input.dataset.least), Number(input.dataset.most)];
      const share = Number(input.value) / 1000;
      if (axis === "quality") return share === 0 ? null : Math.floor(1000 * (low + share * (high - low)) + 1e-9) / 1000;
      if (share === 1) return null;
      const floor = Math.max(low, high / 1e4);
      return raise(floor * Math.pow(high / floor, share));
    };
    const setSlider = (input) => { // where on its slider a limit lies
      const limit = limits[input.dataset.axis];
      if (limit === null) return;
      const [low, high] = [Number(input.dataset.least), Number(input.dataset.most)];
      const floor = Math.max(low, high / 1e4);
      const share = input.dataset.axis === "quality" ? (limit - low) / (high - low) : Math.log(limit / floor) / Math.log(high / floor);
      input.value = String(1000 * Math.min(1, Math.max(0, share)));
      input.parentElement.querySelector("output").textContent = exact[input.dataset.axis](limit);
    };

    const make = (tag, text, kind) => {
      const made = document.createElement(tag);
      made.textContent = text;
      if (kind) made.className = kind;
      return made;
    };
    const item = (lead, name, rest) => {
      const line = document.createElement("li");
      if (lead) line.append(make("b", lead));
      line.append(name, make("span", rest, "quiet"));
      return line;
    };
    const brief = (r) => ` ${[`${data.by} ${r.quality.toFixed(3)}`, said.ms(r.ms), said.usd(r.usd)].filter((v) => v !== "–").join(", ")}`;
    const faster = (r, row) => row.ms - r.ms > Math.max(row.jitter, r.jitter, row.far > 0 && r.far > 0 ? Math.max(row.far, r.far) : 0);
    const listed = (lines, most) => {
      const list = document.createElement("ul");
      list.append(...lines.slice(0, most));
      if (lines.length <= most) return [list];
      const more = document.createElement("details");
      const inside = document.createElement("ul");
      inside.append(...lines.slice(most));
      more.append(make("summary", `and ${lines.length - most} more`), inside);
      return [list, more];
    };

    const tellAlike = (row, within, level) => {
      const place = section.querySelector(".alike");
      const head = make("h3", "Not significantly worse");
      if (rows.length === 1) {
        place.replaceChildren(head, make("p", "Nothing else was swept."));
        return;
      }
      if (!within.length) {
        place.replaceChildren(head, make("p", "Nothing is within these limits."));
        return;
      }
      if (level === null) {
        const unknown = data.level === null
          ? "Whether another is as good is unknown: there are no values of single questions."
          : "There are too many values of single questions for a page: the command above says what is not significantly worse within these limits.";
        place.replaceChildren(head, make("p", unknown));
        return;
      }
      const others = level.map((at) => rows[at]);
      if (!others.length) {
        const none = within.length > 1 ? "None: every other one is significantly worse." : "Nothing else is within these limits.";
        place.replaceChildren(head, make("p", none));
        return;
      }
      const better = (r) => faster(r, row) || r.usd < row.usd;
      others.sort(by((r) => !better(r), (r) => -r.quality));
      const lines = others.map((r) => {
        const parts = [`${data.by} ${r.quality.toFixed(3)}`];
        if (faster(r, row)) parts.push(`faster: ${said.ms(r.ms)}`);
        if (r.usd < row.usd) parts.push(`cheaper: ${said.usd(r.usd)}`);
        return item("", r.short, ` ${parts.join(", ")}`);
      });
      place.replaceChildren(head, ...listed(lines, 6));
    };

    const tellChanges = (row, alone, found) => {
      const place = section.querySelector(".changes");
      if (alone && data.named) {
        const list = document.createElement("ul");
        const best = pick(limits).row;
        list.append(item("The best: ", best.short, brief(best)));
        place.replaceChildren(make("h3", "What would be chosen"), list);
        return;
      }
      const lines = [];
      for (const axis of ["ms", "usd", "mb"]) {
        const value = row[axis];
        const below = rows.map((r) => r[axis]).filter((v) => v !== null && v < value);
        if (value !== null && below.length) {
          const other = pick({ ...limits, [axis]: -least(below.map((v) => -v)) });
          if (other.within.length && other.row !== row) lines.push(item(`Below ${said[axis](value)}: `, other.row.short, brief(other.row)));
        }
        if (limits[axis] === null) continue;
        const above = [...new Set(rows.map((r) => r[axis]).filter((v) => v > limits[axis]))].sort((a, b) => a - b);
        for (const value of above) {
          const raised = { ...limits, [axis]: raise(value) };
          const other = pick(raised);
          if ((found && other.row === row) || !other.within.length) continue;
          const words = lead({ ms: null, usd: null, mb: null, quality: null, [axis]: raised[axis] });
          lines.push(item(`W${words.slice(1)}: `, other.row.short, brief(other.row)));
          break;
        }
      }
      if (limits.quality !== null) {
        const other = pick({ ...limits, quality: null });
        if ((!found || other.row !== row) && other.within.length) lines.push(item("Without a target: ", other.row.short, brief(other.row)));
      }
      const head = make("h3", "What would change it");
      place.replaceChildren(head, ...(lines.length ? listed(lines, 6) : [make("p", found ? "Nothing: with no other limit on time, money or memory another is chosen." : "No single limit: several would have to be raised.")]));
    };

    const why = (row, within, alone) => {
      if (alone && data.named) return `As asked for: place ${(row.at + 1).toLocaleString("en")} of ${rows.length.toLocaleString("en")} by ${data.by}`;
      if (!within.length) return `Nothing is ${lead(limits)}. Closest: ${short(row)}`;
      const begun = lead(limits) || "the choice";
      const rule = limits.quality === null ? `the best ${data.by}` : "the fastest";
      const count = `${within.length.toLocaleString("en")} configuration${within.length === 1 ? "" : "s"}`;
      return `${begun[0].toUpperCase()}${begun.slice(1)}: ${rule} of ${count}`;
    };
    const short = (row) => { // as recommend's shortfall has it
      const parts = [];
      if (limits.ms !== null && row.ms > limits.ms) parts.push(`${(row.ms - limits.ms).toFixed(1)} ms too slow`);
      if (limits.usd !== null && row.usd > limits.usd) parts.push(`${data.currency}${(row.usd - limits.usd).toFixed(2)} too expensive`);
      if (limits.mb !== null && row.mb > limits.mb) parts.push(`${(row.mb - limits.mb).toFixed(1)} MB too large`);
      if (limits.quality !== null && row.quality < limits.quality) parts.push(`${(limits.quality - row.quality).toFixed(3)} short in quality`);
      else if (limits.quality !== null && row.surely < limits.quality) {
        const many = row.low !== null && row.low >= limits.quality ? ` as one of many, ${row.surely.toFixed(3)},` : "";
        parts.push(`the lower end of its quality${many} is ${(limits.quality - row.surely).toFixed(3)} short`);
      }
      return parts.join(" and ");
    };

    const judged = (row) => {
      if (row.judged === null || row.judged >= 1 || (row.lowest !== null && row.lowest === row.highest)) return "";
      const said = `Of the passages behind this score ${(100 * row.judged).toFixed(0)}% are judged; unjudged passages count as not relevant.`;
      if (row.lowest === null || row.highest === null) return said;
      return `${said} Depending on their grades it lies between ${row.lowest.toFixed(3)} and ${row.highest.toFixed(3)}.`;
    };
    const map = document.getElementById(section.id.replace("choice", "sweep"));
    const points = map ? all("[data-at]", map) : [];
    const tell = () => {
      const alone = Object.entries(data.limits).every(([axis, limit]) => limits[axis] === limit); // as Python wrote it
      const { row, within } = alone && data.named ? { row: rows[data.first], within: rows } : pick(limits);
      section.querySelector(".why").textContent = why(row, within, alone);
      section.querySelector(".name").textContent = row.full;
      section.querySelector(".choice").classList.toggle("none", !within.length);
      const span = row.low === null || row.high === null ? "no interval" : `${row.low.toFixed(3)} to ${row.high.toFixed(3)}`;
      const values = [row.quality.toFixed(3), said.ms(row.ms), said.usd(row.usd), said.mb(row.mb)];
      all(".figures .value", section).forEach((place, at) => { place.textContent = values[at]; });
      const beside = all(".figures .beside-it", section);
      beside[0].textContent = span;
      beside[1].textContent = row.slow.includes(null) ? `give or take ${said.ms(row.jitter)}` : `${row.slow[0].toFixed(1)} to ${row.slow[1].toFixed(1)} ms`;
      beside[2].textContent = row.usd === 0 && data.free ? data.free : row.unpriced ? `without ${row.unpriced}` : "per 1,000 queries";
      const given = Object.entries(limits).filter(([, v]) => v !== null).map(([axis, v]) => `${flag[axis]} ${v}`);
      section.querySelector(".command").textContent = ["rankproof recommend", data.folder, ...given].join(" ");
      const level = alone ? data.level : within.length ? chance && chance.level(row, within) : [];
      const expected = alone ? data.expected : limits.quality === null ? chance && chance.expected(within) : null;
      const share = row.low >= 0 && row.high <= 1; // which stays between 0 and 1
      const low = Math.min(row.low + Math.min(expected - row.quality, 0), row.surely), high = row.high + Math.max(expected - row.quality, 0);
      const fair = row.low === null || row.high === null ? "" : ` (${ends((share ? Math.max(low, 0) : low).toFixed(3), (share ? Math.min(high, 1) : high).toFixed(3))})`;
      section.querySelector(".expected").textContent = expected === null ? "" : `Expect about ${expected.toFixed(3)}${fair} on new questions.`;
      section.querySelector(".holes").textContent = judged(row);
      for (const part of all(".unsettled", section)) part.hidden = row.at !== data.first;
      tellAlike(row, within, level);
      tellChanges(row, alone, within.length > 0);
      const inside = new Set(within.map((r) => r.at));
      for (const point of points) {
        const at = Number(point.dataset.at);
        point.classList.toggle("out", !inside.has(at));
        point.classList.toggle("chosen", at === row.at);
      }
    };
    for (const input of inputs) {
      setSlider(input);
      const label = input.parentElement.querySelector("output");
      input.addEventListener("input", () => {
        const value = read(input);
        limits[input.dataset.axis] = value;
        label.textContent = value === null ? "any" : exact[input.dataset.axis](value);
        tell();
      });
    }
    section.querySelector(".limits").hidden = false;
    section.choose = (asked) => {
      Object.assign(limits, asked);
      tell();
      const { row, within } = pick(limits);
      const several = within.length && chance;
      return [row.at, several ? chance.level(row, within) : [], several ? chance.expected(within) : null];
    };
    tell();
  }
})();
