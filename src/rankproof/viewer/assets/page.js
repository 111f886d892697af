"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const token = location.pathname.split("/")[1];
  const narrow = matchMedia("(max-width: 56rem)");

  // What the page knows. Texts come from anywhere: they are set as text, never as HTML.
  let questions = [];      // those the filter wants, in the set's order
  let total = 0;           // passages of the whole set
  let progress = { validated: 0, changed: 0 };
  let question = null;     // the open one, with its passages
  let current = null;      // document of the focused passage
  let marked = null;       // document waiting to be compared
  let everything = false;  // show what the filter hides
  let blind = false;       // the judge is hidden until a person has graded

  // ------------------------------------------------------------------------------ elements

  const SVG = "http://www.w3.org/2000/svg";
  // Text that a file holds never acts: controls and bidirectional overrides are written out, as
  // rankproof.visible does for the terminal; line feeds and tabs stay.
  const ACTING = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
  const visible = (text) => typeof text !== "string" ? text : text.replace(ACTING, (sign) => {
    const code = sign.charCodeAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
  const make = (name, options = {}, ...children) => {
    const { text, on, data, svg, ...attributes } = options;
    const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === true) element.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined)
        element.setAttribute(key, key === "title" || key.startsWith("aria-") ? visible(value) : value);
    }
    for (const [key, value] of Object.entries(data || {})) element.dataset[key] = value;
    for (const [event, listener] of Object.entries(on || {})) element.addEventListener(event, listener);
    if (text !== undefined) element.textContent = visible(text);
    element.append(...children.filter((child) => child !== null).map(visible));
    return element;
  };
  const button = (text, act, options = {}) =>
    make("button", { type: "button", text, on: { click: act }, ...options });
  const number = (value) => value.toLocaleString("en");
  const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

  // The words of the search, marked in a text.
  const marking = (text) => {
    const words = $("search").value.trim().split(/\s+/).filter(Boolean);
    if (!words.length) return [text];
    const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    return text.split(new RegExp(`(${escaped.join("|")})`, "giu"))
      .map((part, at) => (at % 2 ? make("mark", { text: part }) : part));
  };

  // -------------------------------------------------------------------------------- server

  const answer = async (response) => {
    if (response.status === 403) throw new Error("The server refuses this page: open the address that rankproof printed.");
    if (response.ok) return response.json();
    const told = await response.json().catch(() => ({}));
    throw new Error(told.error || `The server failed (${response.status}).`);
  };
  const gone = () => { throw new Error("The server is gone: start `rankproof golden view` again."); };
  const get = async (name, given = {}) =>
    answer(await fetch(`api/${name}?${new URLSearchParams(given)}`).catch(gone));
  // One change after the other, as they were typed.
  let last = Promise.resolve();
  const post = (name, given) => {
    const send = async () => answer(await fetch(`api/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Rankproof-Token": token },
      body: JSON.stringify(given),
    }).catch(gone));
    const sent = last.then(send);
    last = sent.catch(() => {});
    return sent;
  };

  let silence;
  const say = (words, error = false) => {
    clearTimeout(silence);
    $("said").textContent = visible(words);
    $("said").classList.toggle("error", error);
    silence = setTimeout(() => { $("said").textContent = ""; }, error ? 9000 : 4000);
  };
  // Whatever fails is said on the page.
  const told = (act) => async (...given) => {
    try { return await act(...given); } catch (error) { say(error.message, true); return null; }
  };

  // -------------------------------------------------------------------------------- filter

  const filter = () => {
    const source = $("source").value;
    const given = {
      text: $("search").value.trim(),
      grades: [...$("grades").children].filter((b) => b.ariaPressed === "true")
        .map((b) => b.dataset.grade).join(""),
      state: $("state").value,
    };
    if (source.startsWith("found:")) given.found = source.slice(6);
    else if (source) given.source = source.slice(7);
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  };
  const filtered = () => Object.keys(filter()).length > 0;

  for (const grade of [5, 4, 3, 2, 1, 0]) {
    $("grades").append(button(grade || "–", (event) => {
      const pressed = event.target.ariaPressed === "true";
      event.target.ariaPressed = String(!pressed);
      refilter();
    }, { class: `g${grade}`, "aria-pressed": "false", title: grade ? `Grade ${grade}` : "No grade: failed",
         "aria-label": grade ? `Grade ${grade}` : "No grade", data: { grade } }));
  }
  let asked = 0;
  const refilter = told(async () => {
    const mine = ++asked;
    const found = await get("questions", filter());
    if (mine !== asked) return; // an older answer
    questions = found;
    everything = false;
    drawList();
    const held = question && questions.some((each) => each.query === question.query);
    if (held) await open(question.query, { doc: current, stay: true });
    else if (questions.length) await open(questions[0].query, { stay: true });
    else drawQuestion();
  });
  let typing;
  $("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(refilter, 120); });
  $("filter").addEventListener("submit", (event) => { // Enter: on to what was found
    event.preventDefault();
    clearTimeout(typing);
    $("search").blur();
    refilter();
  });
  $("filter").addEventListener("reset", () => {
    for (const each of $("grades").children) each.ariaPressed = "false";
    setTimeout(refilter); // when the fields are empty
  });
  $("state").addEventListener("change", refilter);
  $("source").addEventListener("change", refilter);

  // ---------------------------------------------------------------------------------- list

  const flag = (count, kind, one, many) =>
    count ? make("span", { class: kind, text: counted(count, one, many) }) : null;
  const bar = (each) => {
    const parts = [5, 4, 3, 2, 1].map((grade) => [`g${grade}`, each.grades[grade - 1]]);
    const drawn = make("div", { class: "bar", "aria-hidden": "true" });
    for (const [kind, count] of [...parts, ["g0", each.failed]]) {
      if (!count) continue;
      const part = make("span", { class: kind });
      part.style.flexGrow = count;
      drawn.append(part);
    }
    return drawn;
  };
  const row = (each, some = filtered()) => {
    const grades = [5, 4, 3, 2, 1].map((g) => `${each.grades[g - 1]} × ${g}`).join(", ");
    return make("li", { data: { query: each.query } },
      make("button", { type: "button", title: grades, on: { click: () => open(each.query, { enter: true }) } },
        make("span", { class: "words", dir: "auto" }, ...marking(each.text)),
        bar(each),
        make("span", { class: "flags" },
          make("bdi", { text: each.query }),
          some ? make("span", { text: `${each.matches} of ${each.passages}` })
            : make("span", { text: counted(each.passages, "passage") }),
          flag(each.validated, "good", "validated", "validated"),
          flag(each.differs, "warn", "differs", "differ"),
          flag(each.unsure, "", "unsure", "unsure"),
          flag(each.failed, "bad", "failed", "failed"))));
  };
  const drawList = () => {
    const some = filtered();
    $("list").replaceChildren(...questions.map((each) => row(each, some)));
    const matches = questions.reduce((sum, each) => sum + each.matches, 0);
    $("count").textContent = some
      ? `${counted(questions.length, "question")}, ${counted(matches, "passage")}`
      : `${counted(questions.length, "question")}, ${counted(total, "passage")}`;
    $("clear").hidden = !some;
    drawCurrent();
  };
  const drawCurrent = () => {
    for (const item of $("list").children) {
      const here = question !== null && item.dataset.query === question.query;
      if (here) {
        item.firstChild.setAttribute("aria-current", "true");
        if (!narrow.matches) item.scrollIntoView({ block: "nearest" });
      } else item.firstChild.removeAttribute("aria-current");
    }
  };

  // ------------------------------------------------------------------------------ question

  const back = () => {
    document.body.dataset.view = "list";
    $("list").querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
  };
  let opening = 0;
  let heading = null; // the question that is open, or on its way
  const open = told(async (query, { doc = null, enter = false, stay = false } = {}) => {
    const mine = ++opening;
    heading = query;
    if (question !== null && question.query !== query) current = null; // a grade now would miss
    const found = await get("question", { query, ...filter() });
    if (mine !== opening) return;
    const same = question !== null && question.query === query;
    question = found;
    if (!same) { marked = null; everything = false; }
    const hidden = doc !== null && !shown().some((p) => p.doc === doc);
    if (hidden && !stay) everything = true; // it was asked for
    const first = shown()[0];
    current = shown().some((p) => p.doc === doc) ? doc : first ? first.doc : null;
    if (enter) document.body.dataset.view = "question";
    history.replaceState(null, "", `#${encodeURIComponent(query)}`);
    drawQuestion();
    drawCurrent();
    if (!stay || !$("filter").contains(document.activeElement)) focusCurrent();
  });

  // The judge's order would tell what it thinks: hidden, passages stand by their names.
  const shown = () => {
    if (question === null) return [];
    const found = question.passages.filter((p) => everything || p.matches);
    return blind ? found.map(seen).sort((a, b) => (a.doc < b.doc ? -1 : 1)) : found;
  };
  const seen = (p) => !blind || p.validated ? p
    : { ...p, grade: null, judged: null, again: [], failure: null, rank: null, unsure: false, lists: {} };

  const WHY = { overlap: "sure enough", budget: "its budget was spent", order: "the whole order is known",
    stable: "it stopped changing" };
  const drawQuestion = () => {
    const place = $("question");
    if (question === null || (filtered() && !questions.length)) {
      place.replaceChildren(make("p", { class: "empty", text: filtered()
        ? "No passage fits the filter." : "This golden set holds no questions." }));
      return;
    }
    const visible = shown();
    const ranked = question.passages.filter((p) => p.rank !== null).length;
    const facts = [question.query, counted(question.passages.length, "passage")];
    if (ranked) {
      facts.push(`${ranked} in order by ${counted(question.calls, "call")}` +
        (question.failed ? `, ${number(question.failed)} failed` : ""));
    }
    if (question.reason) facts.push(`ended: ${WHY[question.reason] || question.reason}`);
    if (question.overlap !== null) facts.push(`expected overlap of the top ${question.depth}: ${Math.round(100 * question.overlap)}%`);
    const cards = visible.map(card);
    const firstRest = visible.findIndex((p) => p.rank === null);
    if (firstRest > 0 && !blind) cards.splice(firstRest, 0, make("h3", { class: "rest", text: "Graded, and not put in order" }));
    place.replaceChildren(...[
      button("← Questions", back, { class: "back" }),
      make("div", { class: "asked" }, make("h2", { dir: "auto" }, ...marking(question.text))),
      make("p", { class: "note", text: facts.join(" · ") }),
      question.asked !== question.text
        ? make("p", { class: "note" }, "Searched as: ", make("bdi", { text: question.asked })) : null,
      visible.length < question.passages.length
        ? make("p", { class: "note" }, `${visible.length} of ${question.passages.length} passages fit the filter. `,
            button("show all", () => { everything = true; drawQuestion(); focusCurrent(); }, { class: "plain" })) : null,
      ...cards,
    ].filter((each) => each !== null));
    place.scrollTop = 0;
    place.style.setProperty("--asked", `${place.querySelector(".asked").offsetHeight}px`);
  };

  // The rank that holds as a dot, its interval as a bar, on a line of all ranks.
  const interval = (p) => {
    const ranked = question.passages.filter((other) => other.rank !== null).length;
    const at = (rank) => `${ranked < 2 ? 50 : 2 + 96 * (rank - 1) / (ranked - 1)}%`;
    const line = (kind, from, to) =>
      make("line", { svg: true, class: kind, x1: from, x2: to, y1: 7, y2: 7 });
    const cut = question.depth < ranked
      ? make("line", { svg: true, class: "cut", x1: at(question.depth + .5), x2: at(question.depth + .5), y1: 0, y2: 14 }) : null;
    const words = `rank ${p.rank}; 95% interval ${p.low} to ${p.high} of ${ranked}` +
      (p.top === null ? "" : `; in the top ${question.depth} with a probability of ${Math.round(100 * p.top)}%`);
    return make("div", { class: `interval${p.unsure ? " unsure" : ""}`, title: words },
      make("svg", { svg: true, role: "img", "aria-label": words },
        line("track", "0%", "100%"), ...(cut ? [cut] : []), line("range", at(p.low), at(p.high)),
        make("circle", { svg: true, class: "dot", cx: at(p.rank), cy: 7, r: 4.5 })),
      make("span", { class: "note num", text: `${p.low}–${p.high}` }));
  };

  const grading = (p) => {
    const group = make("div", { class: "segments", role: "group", "aria-label": "Grade" });
    for (const grade of [1, 2, 3, 4, 5]) {
      group.append(button(grade, () => correct(p.doc, "grade", grade), {
        class: `g${grade}${p.judged === grade ? " judge" : ""}`, tabindex: -1,
        "aria-pressed": String(p.grade === grade),
        title: p.judged === grade ? "the judge's grade" : null }));
    }
    return group;
  };

  const badges = (p) => {
    const found = [];
    const badge = (kind, text) => found.push(make("span", { class: `badge ${kind}`, text }));
    if (p.validated && p.judged !== null && p.judged !== p.grade) badge("warn", `judge ${p.judged}, ${p.validated.who} ${p.grade}`);
    else if (p.validated) badge("good", `✓ ${p.validated.who}`);
    if (p.again.some((grade) => grade !== p.judged)) badge("warn", `asked again: ${p.again.join(", ")}`);
    if (p.failure) badge("bad", `failed: ${p.failure}`);
    if (p.unsure && !p.failure) badge("soft", "unsure");
    return found;
  };

  const card = (p) => {
    const lists = Object.entries(p.lists).map(([name, rank]) => `${name} ${rank}`).join(", ");
    return make("article", {
      class: `passage${p.doc === current ? " current" : ""}${p.doc === marked ? " marked" : ""}`,
      tabindex: p.doc === current ? 0 : -1, data: { doc: p.doc },
      "aria-label": `Passage ${p.doc}, ${p.grade === null ? "no grade" : `grade ${p.grade}`}`,
      on: {
        focusin: () => choose(p.doc),
        click: (event) => { if (!event.target.closest("button, summary, a")) event.currentTarget.focus({ preventScroll: true }); },
      },
    },
    make("div", { class: "top" },
      p.rank === null ? null : make("span", { class: "rank" }, String(p.rank),
        p.judged_rank === p.rank ? "" : make("del", { text: p.judged_rank, title: "the judge's rank" })),
      p.rank === null ? null : interval(p), grading(p)),
    make("p", { class: "text", dir: "auto" }, ...marking(p.text)),
    make("div", { class: "under" },
      make("bdi", {}, ...marking(p.doc)),
      p.source === null ? null : make("bdi", {}, ...marking(p.source)),
      lists ? make("span", { text: lists }) : null,
      ...badges(p),
      make("span", { class: "acts" },
        button("Agree", () => validate(p.doc), { tabindex: -1, title: "the grade is right (v)" }),
        button("Compare", () => compare(p.doc), { tabindex: -1, title: "side by side with another (c)" }),
        button("Why", () => toggleEvidence(p.doc), { tabindex: -1, title: "replies and changes (r)", "aria-expanded": "false" }))));
  };
  const element = (doc) => [...document.querySelectorAll(".passage")].find((each) => each.dataset.doc === doc);
  const passage = (doc) => question.passages.find((p) => p.doc === doc);

  const choose = (doc) => {
    if (doc === current) return;
    const before = element(current);
    if (before) { before.classList.remove("current"); before.tabIndex = -1; }
    current = doc;
    const now = element(doc);
    now.classList.add("current");
    now.tabIndex = 0;
  };
  const focusCurrent = () => {
    const here = current === null ? null : element(current);
    if (!here) return;
    here.focus({ preventScroll: true });
    const first = here === document.querySelector(".passage");
    if (first) (narrow.matches ? window : $("question")).scrollTo(0, 0); // its question above it
    else here.scrollIntoView({ block: "nearest" });
  };
  const step = (by) => {
    const docs = shown().map((p) => p.doc);
    if (!docs.length) return;
    const at = docs.indexOf(current);
    choose(docs[Math.max(0, Math.min(docs.length - 1, at < 0 ? 0 : at + by))]);
    focusCurrent();
  };
  const turn = (by) => {
    const at = questions.findIndex((each) => each.query === heading);
    const next = questions[at + by];
    if (next) open(next.query, { enter: true });
    else say(by > 0 ? "That was the last question." : "This is the first question.");
  };

  // ---------------------------------------------------------------------------- correcting

  // A passage that was graded stays where it is; one that was moved goes to its place. Whoever
  // types fast is elsewhere by now and stays there, unless they are to `go` and see.
  const took = async (done, go = false) => {
    $("readonly").hidden = true; // or it would have been refused
    progress = done.progress;
    drawAgreement();
    const at = questions.findIndex((each) => each.query === done.summary.query);
    if (at >= 0) {
      questions[at] = { ...done.summary, matches: questions[at].matches };
      $("list").children[at].replaceWith(row(questions[at]));
      drawCurrent();
    }
    if (question === null || question.query !== done.question.query) {
      if (go) await open(done.question.query, { doc: done.doc, enter: true });
      return;
    }
    const before = new Map(question.passages.map((p) => [p.doc, p]));
    const now = new Map(done.question.passages.map((p) => [p.doc, p]));
    const order = (done.field === "rank" ? done.question : question).passages.map((p) => p.doc)
      .filter((doc) => before.has(doc) && now.has(doc));
    question = { ...done.question, passages: order.map((doc) => ({ ...now.get(doc), matches: before.get(doc).matches })) };
    if (go && !shown().some((p) => p.doc === done.doc)) everything = true;
    if (done.field === "rank" || !element(done.doc)) {
      if (go) current = done.doc;
      drawQuestion();
      focusCurrent();
      return;
    }
    if (go) choose(done.doc);
    const told = element(done.doc).querySelector(".evidence");
    element(done.doc).replaceWith(card(seen(passage(done.doc))));
    if (current === done.doc) focusCurrent();
    if (told) await toggleEvidence(done.doc);
  };
  const was = (value) => (value === null ? "none" : value);
  const correct = told(async (doc, field, value) => {
    const done = await post("correct", { query: question.query, doc, field, new: value });
    await took(done);
    const words = field === "rank" ? `moved from ${was(done.old)} to ${done.new}`
      : done.old === done.new ? `grade ${done.new} validated` : `grade ${was(done.old)} → ${done.new}`;
    say(`${doc}: ${words}. u undoes it.`);
  });
  const validate = told(async (doc) => {
    const { grade } = seen(passage(doc));
    if (grade === null) throw new Error("There is no grade to agree with: give one, 1 to 5.");
    await correct(doc, "grade", grade);
  });
  const undo = told(async (correction = null) => {
    const done = await post("undo", { correction });
    await took(done, true);
    say(`${done.doc}: ${done.field} ${was(done.old)} → ${was(done.new)}, undone.`);
  });
  const move = (by) => {
    const p = seen(passage(current));
    const ranked = question.passages.filter((other) => other.rank !== null).length;
    if (!p || p.rank === null) { say("This passage is not in the order."); return; }
    const rank = p.rank + by;
    if (rank >= 1 && rank <= ranked) correct(p.doc, "rank", rank);
  };
  const draw = told(async () => {
    const next = await get("next");
    if (next === null) { say("Every graded passage is validated."); return; }
    await open(next.query, { doc: next.doc, enter: true });
  });

  const hide = () => {
    blind = !blind;
    $("blind").ariaPressed = String(blind);
    drawQuestion();
    focusCurrent();
    say(blind ? "The judge is hidden where nobody has graded yet." : "The judge is shown.");
  };

  // ------------------------------------------------------------------------------ evidence

  const time = (text) => new Date(text).toLocaleString();
  const replyShown = (reply) => {
    const cost = reply.cost === null ? "cost not known" : `$${Number(reply.cost.toFixed(6))}`;
    return [
      make("pre", { text: reply.text || "(nothing)", dir: "auto" }),
      reply.failure ? make("p", { class: "bad", text: `Failed: ${reply.failure}` }) : null,
      make("p", { class: "note", text: reply.labels.map(([name, doc]) => `${name} = ${doc}`).join(", ") }),
      make("p", { class: "note", text: `${reply.model}, ${time(reply.at)}, attempt ${reply.attempt}, ` +
        `${reply.tokens[0]} tokens in, ${reply.tokens[1]} out, ${reply.seconds.toFixed(1)} s, ${cost}` }),
    ].filter((each) => each !== null);
  };
  const historyShown = (each) => {
    const what = each.undoes !== null ? `took change ${each.undoes} back: ${each.field} ${was(each.old)} → ${was(each.new)}`
      : each.old === each.new ? `agreed with ${each.field} ${each.new}` : `${each.field} ${was(each.old)} → ${each.new}`;
    return make("li", { class: each.undone ? "undone" : "" }, `${each.id}. ${each.who}, ${time(each.at)}: ${what} `,
      each.undone ? "" : button(each.undoes === null ? "undo" : "redo", () => undo(each.id), { class: "plain" }));
  };
  const toggleEvidence = told(async (doc) => {
    if (seen(passage(doc)) !== passage(doc)) throw new Error("The judge is hidden (h): grade the passage first.");
    const place = element(doc);
    const shownNow = place.querySelector(".evidence");
    if (shownNow) {
      shownNow.remove();
      place.querySelector(".acts button:last-child").setAttribute("aria-expanded", "false");
      return;
    }
    const { query } = question;
    const found = await get("evidence", { query, doc });
    if (question.query !== query || !element(doc) || element(doc).querySelector(".evidence")) return;
    const orders = found.orders.map((reply) => make("details", {},
      make("summary", { text: reply.result === null ? "failed"
        : `${reply.result.indexOf(doc) + 1} of ${reply.result.length}: ${reply.result.join(" > ")}` }),
      ...replyShown(reply)));
    element(doc).append(make("div", { class: "evidence" },
      make("h3", { text: "What the judge replied when it graded" }),
      ...(found.grade.length ? found.grade.flatMap(replyShown) : [make("p", { class: "note", text: "No reply is stored." })]),
      make("h3", { text: orders.length ? `${counted(orders.length, "order")} it stood in, best first` : "It stood in no order" }),
      ...orders,
      make("h3", { text: found.history.length ? "What people changed" : "Nobody changed anything" }),
      make("ul", {}, ...found.history.map(historyShown))));
    element(doc).querySelector(".acts button:last-child").setAttribute("aria-expanded", "true");
    element(doc).querySelector(".evidence pre, .evidence .note").scrollIntoView({ block: "nearest" });
  });

  // ------------------------------------------------------------------------------- compare

  const compare = told(async (doc) => {
    if (marked === null || marked === doc) {
      marked = marked === doc ? null : doc;
      for (const each of document.querySelectorAll(".passage")) {
        each.classList.toggle("marked", each.dataset.doc === marked);
      }
      say(marked ? `${doc} is marked: press c on another to compare them.` : "No longer marked.");
      return;
    }
    const pair = [marked, doc];
    const both = await get("pair", { query: question.query, first: pair[0], second: pair[1] });
    $("compare-words").textContent = blind ? "" : both.together
      ? `The judge saw both in ${counted(both.together, "call")}; ${pair[0]} came first in ${both.first}.`
      : "The judge never saw both in one call.";
    $("compare-pair").replaceChildren(...pair.map((each) => {
      const p = seen(passage(each));
      const facts = p.rank === null ? "not in order" : `rank ${p.rank} (${p.low}–${p.high})`;
      return make("div", {}, make("h3", {}, make("bdi", { text: p.doc })),
        make("p", { class: "note", text: `${facts}, ${p.grade === null ? "no grade" : `grade ${p.grade}`}${p.source === null ? "" : `, ${p.source}`}` }),
        make("p", { class: "text", dir: "auto", text: p.text }));
    }));
    marked = null;
    for (const each of document.querySelectorAll(".passage.marked")) each.classList.remove("marked");
    say("");
    $("compare").showModal();
  });

  // ----------------------------------------------------------------------------- agreement

  const NAMES = { exact: "same grade", "κ, quadratic": "κ, quadratic weights", "AC2, quadratic": "Gwet's AC2, quadratic weights",
    "α, ordinal": "Krippendorff's α, ordinal", "κ, 4+": "κ of 4 or more", "AC1, 4+": "Gwet's AC1 of 4 or more" };
  const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
  let agreed = 0;
  const drawAgreement = told(async () => {
    const mine = ++agreed;
    const start = make("span", {}, "Validated ", make("b", { text: number(progress.validated) }), ` of ${number(total)}`);
    $("progress").replaceChildren(start);
    if (!progress.validated) { $("agreement-body").replaceChildren(explain(0)); return; }
    const found = await get("agreement");
    if (mine !== agreed) return;
    const exact = found.coefficients.exact;
    const kappa = found.coefficients["κ, quadratic"];
    $("progress").replaceChildren(start, ...(exact ? [
      " · ", make("b", { text: `${Math.round(100 * exact.value)}%` }), " agree",
      ...(kappa.ci === null ? [] : [" · κ ", make("b", { text: figure(kappa.value) })])] : []));
    const rows = Object.entries(NAMES).filter(([name]) => found.coefficients[name]).map(([name, words]) => {
      const each = found.coefficients[name];
      return make("tr", {}, make("td", { text: words }), make("td", { class: "num", text: figure(each.value) }),
        make("td", { class: each.undefined ? "note" : "num", text: each.undefined ||
          (each.ci ? `${figure(each.ci[0])} to ${figure(each.ci[1])}` : "–") }));
    });
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...["Figure", "Value", "95% interval"].map((head, at) =>
      make("th", { text: head, class: at ? "num" : "" })))), make("tbody", {}, ...rows));
    const crossed = make("table", {},
      make("thead", {}, make("tr", {}, make("th", {}), ...found.levels.map((level) => make("th", { class: "num", text: level })))),
      make("tbody", {}, ...found.confusion.map((cells, at) => make("tr", {}, make("th", { text: found.levels[at] }),
        ...cells.map((count, to) => make("td", { class: `num${at === to ? " same" : ""}`, text: count || "·" }))))));
    $("agreement-body").replaceChildren(explain(found.pairs), ...(found.pairs ? [table,
      make("h3", { text: "The judge's grades (rows) and people's (columns)" }), crossed] : []));
  });
  const explain = (pairs) => make("p", { class: "note", text: pairs
    ? `${counted(pairs, "passage")} that the judge and a person graded; people changed ${number(progress.changed)}. ` +
      "Who corrects only what looks wrong makes the judge look worse than it is, and who sees its grade tends to agree: " +
      "for an honest figure hide the judge (h) and grade what is drawn at random (g)."
    : "Nobody has validated a passage yet. Draw one at random (g) and grade it (1–5), or agree with its grade (v)." });

  // ---------------------------------------------------------------------------------- keys

  const root = document.documentElement;
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = dark === "dark" ? "light" : "dark";
  });
  $("undo").addEventListener("click", () => undo());
  $("random").addEventListener("click", draw);
  $("blind").addEventListener("click", hide);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("progress").addEventListener("click", () => $("agreement").showModal());
  for (const close of document.querySelectorAll(".close")) {
    close.addEventListener("click", () => close.closest("dialog").close());
  }
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", focusCurrent);
  }

  const KEYS = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    n: () => turn(1), ArrowRight: () => turn(1), p: () => turn(-1), ArrowLeft: () => turn(-1),
    J: () => move(1), K: () => move(-1),
    u: () => undo(), g: draw, h: () => hide(),
    v: () => current && validate(current),
    r: () => current && toggleEvidence(current),
    c: () => current && compare(current),
    "/": () => { document.body.dataset.view = "list"; $("search").select(); $("search").focus(); },
    "?": () => $("keys").showModal(),
  };
  for (const grade of [1, 2, 3, 4, 5]) KEYS[grade] = () => current && correct(current, "grade", grade);
  const MOVES = "jknpArrowDownArrowUpArrowRightArrowLeft"; // these may be held down
  // Caps Lock is no Shift, and a digit is one on keyboards that want Shift for it.
  const meant = ({ key, code, shiftKey }) => {
    if (/^[a-z]$/i.test(key)) return shiftKey ? key.toUpperCase() : key.toLowerCase();
    return !shiftKey && /^Digit[1-5]$/.test(code) ? code.slice(5) : key;
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input, select")) {
      if (event.key === "Escape") focusCurrent();
      return;
    }
    const key = meant(event);
    const act = KEYS[key];
    if (!act || (question === null && key !== "/" && key !== "?")) return;
    event.preventDefault();
    if (!event.repeat || MOVES.includes(key)) act();
  });

  // --------------------------------------------------------------------------------- start

  told(async () => {
    const set = await get("set");
    questions = set.questions;
    total = questions.reduce((sum, each) => sum + each.passages, 0);
    progress = set.progress;
    $("name").textContent = visible(set.name);
    document.title = visible(`${set.name} · rankproof`);
    $("facts").textContent = $("facts").title = visible(`Judge: ${set.judge} · you are ${set.who}`);
    $("simulated").hidden = !set.simulated;
    if (set.readonly) {
      $("readonly").textContent = `Read-only for now: ${set.readonly}.`;
      $("readonly").hidden = false;
    }
    const wanted = questions.find((each) => `#${encodeURIComponent(each.query)}` === location.hash);
    const first = wanted || questions[0];
    const coming = first ? open(first.query, { enter: Boolean(wanted) }) : drawQuestion();
    drawList(); // while the first question is on its way
    await coming;
    drawAgreement();
    for (const [name, count] of await get("sources")) {
      let group = document.getElementById("sources");
      if (!group) {
        group = make("optgroup", { id: "sources", label: "Source" });
        $("source").append(group);
      }
      group.append(make("option", { value: `source:${name}`, text: `${name} (${number(count)})` }));
    }
  })();
})();
