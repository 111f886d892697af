"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const token = location.pathname.split("/")[1];
  const narrow = matchMedia("(max-width: 56rem)");
  const wide = matchMedia("(min-width: 100rem)");

  // What the page knows. Texts come from anywhere: they are set as text, never as HTML.
  let questions = [];      // those the filter wants, in the set's order
  let total = 0;           // passages of the whole set
  let progress = [];       // of each person
  let me = { who: "", settles: false, blind: false };
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

  // The words of the search, marked in a text, and the words of the question, underlined: also where
  // they end otherwise (whale, whales). Words that every question has say nothing.
  const STOP = new Set(("a about an and are as at be by can case de des did do does du en est et for from had has have how i " +
    "in into is it its la le les of on or par pour quel quelle que qui se sont sur that the their there these this to " +
    "un une was were what when where which who why will with you your au aux dans ce ces cette il elle pas plus").split(" "));
  const escaped = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const stem = (word) => (word.length > 4 ? word.replace(/(ies|es|s|ing|ed)$/u, "") : word);
  const terms = (text) => [...new Set((text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [])
    .filter((word) => (word.length > 2 || /\p{N}/u.test(word)) && !STOP.has(word)).map(stem))];
  const marking = (text, asked = "") => {
    const words = $("search").value.trim().split(/\s+/).filter(Boolean).map(escaped);
    const wanted = terms(asked).map((word) => `${escaped(word)}\\p{L}{0,3}(?![\\p{L}\\p{N}])`);
    if (!words.length && !wanted.length) return [text];
    const parts = [words.length ? `(${words.join("|")})` : "($^)",
      wanted.length ? `(?<![\\p{L}\\p{N}])(${wanted.join("|")})` : "($^)"];
    const found = [];
    let end = 0;
    for (const hit of text.matchAll(new RegExp(parts.join("|"), "giu"))) {
      if (!hit[0]) continue;
      found.push(text.slice(end, hit.index), make("mark", { text: hit[0], class: hit[1] ? "" : "term" }));
      end = hit.index + hit[0].length;
    }
    return [...found, text.slice(end)];
  };

  // -------------------------------------------------------------------------------- server

  const answer = async (response) => {
    if (response.status === 403) throw new Error("The server refuses this page: open the address that rankproof printed.");
    if (response.ok) return response.json();
    const told = await response.json().catch(() => ({}));
    const error = new Error(told.error || `The server failed (${response.status}).`);
    throw Object.assign(error, { meanwhile: Boolean(told.meanwhile) });
  };
  const gone = () => { throw new Error("The server is gone: start `rankproof golden view` again."); };
  const get = async (name, given = {}) =>
    answer(await fetch(`api/${name}?${new URLSearchParams(given)}`).catch(gone));
  // One change after the other, as they were typed.
  let last = Promise.resolve();
  const post = (name, given) => {
    const send = async () => {
      const done = await answer(await fetch(`api/${name}`, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Rankproof-Token": token },
        body: JSON.stringify(given()),
      }).catch(gone));
      learn(done.question);
      return done;
    };
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
    try { return await act(...given); } catch (error) {
      say(error.message, true);
      if (error.meanwhile && question !== null) await open(question.query, { doc: current, stay: true });
      return null;
    }
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
  // One search at a time, without waiting for a pause: what is typed meanwhile comes next, the last
  // of it alone.
  let searching = false;
  let again = false;
  const refilter = told(async () => {
    again = searching;
    if (again) return;
    searching = true;
    try {
      do {
        again = false;
        const before = opening;
        const found = await get("questions", filter());
        if (again) continue; // an older answer
        questions = found;
        everything = false;
        drawList();
        if (opening !== before) continue; // who has gone elsewhere meanwhile stays there
        const held = question && questions.some((each) => each.query === question.query);
        if (held) open(question.query, { doc: current, stay: true });
        else if (questions.length) open(questions[0].query, { stay: true });
        else drawQuestion();
      } while (again);
    } finally { searching = false; }
  });
  $("search").addEventListener("input", refilter);
  $("filter").addEventListener("submit", (event) => { // Enter: on to what was found
    event.preventDefault();
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
          flag(each.queue, "", "to do", "to do"),
          flag(each.differs, "warn", "differs", "differ"),
          flag(each.unsure, "warn", "unsure", "unsure"),
          flag(each.unclear, "", "unclear", "unclear"),
          flag(each.failed, "bad", "failed", "failed"))));
  };
  // What is in sight at once, the rest while nobody waits.
  let drawing;
  const drawRows = (from, some) => {
    const to = from ? from + 200 : 40;
    $("list").append(...questions.slice(from, to).map((each) => row(each, some)));
    if (to < questions.length) drawing = setTimeout(() => drawRows(to, some));
    else if (from) drawCurrent();
  };
  const drawList = () => {
    const some = filtered();
    clearTimeout(drawing);
    $("list").replaceChildren();
    drawRows(0, some);
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
    learn(found);
    if (!same) { marked = null; everything = false; }
    const hidden = doc !== null && !shown().some((p) => p.doc === doc);
    if (hidden && !stay) everything = true; // it was asked for
    const first = shown()[0];
    current = shown().some((p) => p.doc === doc) ? doc : first ? first.doc : null;
    if (enter) document.body.dataset.view = "question";
    history.replaceState(null, "", `#${encodeURIComponent(query)}`);
    drawQuestion();
    drawCurrent();
    drawBeside();
    if (!stay || !$("filter").contains(document.activeElement)) focusCurrent();
  });

  // The judge's order would tell what it thinks: hidden, passages stand by their names.
  const shown = () => {
    if (question === null) return [];
    const found = question.passages.filter((p) => everything || p.matches);
    return blind ? found.map(seen).sort((a, b) => (a.doc < b.doc ? -1 : 1)) : found;
  };
  const seen = (p) => !blind || p.validated ? p
    : { ...p, grade: null, judged: null, again: [], failure: null, rank: null, unclear: false, lists: {} };

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
    const { ranked } = question;
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
    const { ranked } = question;
    const at = (rank) => `${ranked < 2 ? 50 : 2 + 96 * (rank - 1) / (ranked - 1)}%`;
    const line = (kind, from, to) =>
      make("line", { svg: true, class: kind, x1: from, x2: to, y1: 7, y2: 7 });
    const cut = question.depth < ranked
      ? make("line", { svg: true, class: "cut", x1: at(question.depth + .5), x2: at(question.depth + .5), y1: 0, y2: 14 }) : null;
    const words = `rank ${p.rank}; 95% interval ${p.low} to ${p.high} of ${ranked}` +
      (p.top === null ? "" : `; in the top ${question.depth} with a probability of ${Math.round(100 * p.top)}%`);
    return make("div", { class: `interval${p.unclear ? " unsure" : ""}`, title: words },
      make("svg", { svg: true, role: "img", "aria-label": words },
        line("track", "0%", "100%"), ...(cut ? [cut] : []), line("range", at(p.low), at(p.high)),
        make("circle", { svg: true, class: "dot", cx: at(p.rank), cy: 7, r: 4.5 })),
      make("span", { class: "note num", text: `${p.low}–${p.high}` }));
  };

  const grading = (p) => {
    const group = make("div", { class: "segments", role: "group", "aria-label": "Grade" });
    for (const grade of [1, 2, 3, 4, 5]) {
      group.append(button(grade, () => label(p.doc, { grade }), {
        class: `g${grade}${p.judged === grade ? " judge" : ""}`, tabindex: -1,
        "aria-pressed": String(p.grade === grade),
        title: p.judged === grade ? "the judge's grade" : null }));
    }
    group.append(button("?", () => doubt(p.doc), { class: "doubt", tabindex: -1, title: "not sure (s)",
      "aria-label": "not sure", "aria-pressed": String(p.mine !== null && !p.mine.sure) }));
    return group;
  };

  const badges = (p) => {
    const found = [];
    const badge = (kind, text) => found.push(make("span", { class: `badge ${kind}`, text }));
    if (p.validated && p.judged !== null && p.judged !== p.grade) badge("warn", `judge ${p.judged}, ${p.people.length ? "people" : me.who} ${p.grade}`);
    else if (p.validated && !p.people.length) badge("good", `✓ ${me.who}`);
    for (const each of p.people) {
      badge(each.sure ? "soft" : "warn", `${each.who}: ${each.grade === null ? "–" : each.grade}${each.sure ? "" : " unsure"}`);
    }
    if (me.settles && p.mine !== null) badge("good", `settled: ${p.mine.grade} (${p.mine.who})`);
    if (p.again.some((grade) => grade !== p.judged)) badge("warn", `asked again: ${p.again.join(", ")}`);
    if (p.failure) badge("bad", `failed: ${p.failure}`);
    if (p.unsure && !p.people.length) badge("warn", "unsure");
    if (p.unclear && !p.failure) badge("soft", "unclear");
    if (p.instruction) badge("bad", `may contain a prompt injection: “${p.instruction}”`);
    if (p.hole) badge("soft", `moves the comparison by up to ${p.hole.toFixed(4)}`);
    return found;
  };
  const notes = (p) => [...p.people, ...(p.mine === null ? [] : [p.mine])].filter((each) => each.note)
    .map((each) => make("p", { class: "remark", dir: "auto" }, make("b", { text: `${each.who}: ` }), each.note));

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
    make("p", { class: "text", dir: "auto" }, ...marking(p.text, question.text)),
    ...notes(p),
    make("div", { class: "under" },
      make("bdi", {}, ...marking(p.doc)),
      p.source === null ? null : make("bdi", {}, ...marking(p.source)),
      lists ? make("span", { text: lists }) : null,
      ...badges(p),
      make("span", { class: "acts" },
        button("Validate", () => validate(p.doc), { tabindex: -1, title: "the grade is right (v)" }),
        button("Note", () => remark(p.doc), { tabindex: -1, title: "write a note (m)" }),
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
    drawBeside();
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
      $("list").children[at]?.replaceWith(row(questions[at]));
      drawCurrent();
    }
    if (question === null || question.query !== done.question.query) {
      if (go) await open(done.question.query, { doc: done.made.doc, enter: true });
      return;
    }
    const before = new Map(question.passages.map((p) => [p.doc, p]));
    const now = new Map(done.question.passages.map((p) => [p.doc, p]));
    const order = (done.made.field === "rank" ? done.question : question).passages.map((p) => p.doc)
      .filter((doc) => before.has(doc) && now.has(doc));
    question = { ...done.question, passages: order.map((doc) => ({ ...now.get(doc), matches: before.get(doc).matches })) };
    if (go && !shown().some((p) => p.doc === done.made.doc)) everything = true;
    if (done.made.field === "rank" || !element(done.made.doc)) {
      if (go) current = done.made.doc;
      drawQuestion();
      focusCurrent();
      return;
    }
    if (go) choose(done.made.doc);
    drawBeside();
    for (const p of shown()) { // others stay where they are, too, with the rank they have now
      const place = element(p.doc);
      if (p.doc === done.made.doc || place.querySelector("textarea, .evidence") || same(p, seen(before.get(p.doc)))) continue;
      const focused = place === document.activeElement && p.doc === current; // not while another question is on its way
      place.replaceWith(card(p));
      if (focused) element(p.doc).focus({ preventScroll: true });
    }
    const told = element(done.made.doc).querySelector(".evidence");
    element(done.made.doc).replaceWith(card(seen(passage(done.made.doc))));
    if (current === done.made.doc) focusCurrent();
    if (told) await toggleEvidence(done.made.doc);
  };
  const same = (one, other) => ["rank", "low", "high", "unclear"].every((name) => one[name] === other[name]);
  const was = (value) => (value === null ? "none" : value);
  // A change says which row of ours it was made upon: from another tab nothing is overwritten unseen.
  const label = told(async (doc, given) => {
    const { query } = question;
    const done = await post("label", () => ({ query, doc, seen: known(query, doc), ...given }));
    await took(done);
    const words = done.made.new === null ? (done.made.sure ? "noted" : "not sure")
      : done.made.old === done.made.new ? `grade ${done.made.new} validated` : `grade ${was(done.made.old)} → ${done.made.new}`;
    say(`${doc}: ${words}${done.made.sure || done.made.new === null ? "" : ", not sure"}. u undoes it.`);
  });
  // What the page knows of one's own last row of a passage; a grade typed fast may be on its way.
  const rows = new Map();
  const known = (query, doc) => rows.get(JSON.stringify([query, doc])) ?? 0;
  const learn = (found) => {
    for (const p of found.passages) rows.set(JSON.stringify([found.query, p.doc]), p.seen);
    rows.set(JSON.stringify([found.query]), found.moves);
  };
  const doubt = (doc) => label(doc, { sure: !(passage(doc).mine === null || passage(doc).mine.sure) });
  const remark = (doc) => {
    const place = element(doc);
    if (place.querySelector("textarea")) return;
    const mine = passage(doc).mine;
    const field = make("textarea", { rows: 2, dir: "auto", "aria-label": "Note", placeholder: "A note; Enter keeps it, Esc leaves it" });
    field.value = mine === null ? "" : mine.note || "";
    const leave = () => { field.remove(); focusCurrent(); };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      const note = field.value.trim();
      leave();
      if (note === (mine === null ? "" : mine.note || "")) return;
      if (note || mine.grade !== null || !mine.sure) label(doc, { note });
      else undo(passage(doc).seen); // there was nothing but the note
    });
    place.querySelector(".under").before(field);
    field.focus();
  };
  const validate = told(async (doc) => {
    const { grade } = seen(passage(doc));
    if (grade === null) throw new Error("There is no grade to agree with: give one, 1 to 5.");
    await label(doc, { grade, sure: true });
  });
  const undo = told(async (correction = null) => {
    const done = await post("undo", () => ({ correction }));
    await took(done, true);
    const { doc, field, old, new: now } = done.made;
    say(old === now ? `${doc}: undone.` : `${doc}: ${field} ${was(old)} → ${was(now)}, undone.`);
  });
  const move = (by) => {
    const p = seen(passage(current));
    const { ranked } = question;
    if (!p || p.rank === null) { say("This passage is not in the order."); return; }
    const rank = p.rank + by;
    if (rank >= 1 && rank <= ranked) place(p.doc, rank);
  };
  const place = told(async (doc, rank) => {
    const { query } = question;
    const done = await post("move", () => ({ query, doc, rank, seen: known(query) }));
    await took(done);
    say(`${doc}: moved from ${was(done.made.old)} to ${done.made.new}. u undoes it.`);
  });
  const prefer = told(async (doc, over) => {
    const { query } = question;
    const done = await post("prefer", () => ({ query, doc, over, seen: known(query) }));
    await took(done);
    say(`${doc} is put above ${over}. u undoes it.`);
  });
  const draw = (by) => told(async () => {
    const next = await get("next", { by });
    if (next === null) { say(me.settles && by === "gain" ? "People disagree on nothing that is not settled." : "Every passage is validated."); return; }
    await open(next.query, { doc: next.doc, enter: true });
  })();

  const hide = () => {
    if (me.blind) { say("The judge stays hidden until you have graded."); return; }
    blind = !blind;
    $("blind").ariaPressed = String(blind);
    drawQuestion();
    drawBeside();
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
  const change = (each) => {
    if (each.field === "rank" && each.above.length === 1 && !each.below.length) return `put above ${each.above[0]}`;
    if (each.field === "grade" && each.new === null) return each.sure ? "a note" : "not sure";
    const more = each.sure ? "" : ", not sure";
    return each.old === each.new ? `agreed with ${each.field} ${each.new}${more}` : `${each.field} ${was(each.old)} → ${each.new}${more}`;
  };
  const historyShown = (each) => {
    const what = each.undoes !== null ? `took change ${each.undoes} back: ${each.field} ${was(each.old)} → ${was(each.new)}` : change(each);
    return make("li", { class: each.undone ? "undone" : "" },
      `${each.id}. ${each.who}${each.settles ? " (settling)" : ""}, ${time(each.at)}: ${what}${each.note && each.undoes === null ? ` – ${each.note}` : ""} `,
      each.undone || !each.mine ? "" : button(each.undoes === null ? "undo" : "redo", () => undo(each.id), { class: "plain" }));
  };
  const reasons = (found, doc) => {
    const orders = found.orders.map((reply) => make("details", {},
      make("summary", { text: reply.result === null ? "failed"
        : `${reply.result.indexOf(doc) + 1} of ${reply.result.length}: ${reply.result.join(" > ")}` }),
      ...replyShown(reply)));
    return [
      make("h3", { text: "What the judge replied when it graded" }),
      ...(found.grade.length || found.hidden ? found.grade.flatMap(replyShown) : [make("p", { class: "note", text: "No reply is stored." })]),
      found.hidden ? make("p", { class: "note", text: `${counted(found.hidden, "reply", "replies")} hidden until you have graded every passage named there.` }) : "",
      make("h3", { text: orders.length || found.hidden ? `${counted(orders.length, "order")} it stood in, best first` : "It stood in no order" }),
      ...orders,
      make("h3", { text: found.history.length ? (me.settles ? "What people changed" : "What you changed") : "Nothing was changed" }),
      make("ul", {}, ...found.history.map(historyShown))];
  };
  const toggleEvidence = told(async (doc) => {
    if (seen(passage(doc)) !== passage(doc) || (me.blind && !passage(doc).validated)) {
      throw new Error("The judge is hidden (h): grade the passage first.");
    }
    if (wide.matches) { choose(doc); $("beside").focus(); return; } // it is there already
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
    element(doc).append(make("div", { class: "evidence" }, ...reasons(found, doc)));
    element(doc).querySelector(".acts button:last-child").setAttribute("aria-expanded", "true");
    element(doc).querySelector(".evidence pre, .evidence .note").scrollIntoView({ block: "nearest" });
  });

  // On a wide screen the reasons stand beside the passage, whichever is looked at.
  let looking;
  const drawBeside = () => {
    clearTimeout(looking);
    if (!wide.matches) return;
    const doc = current;
    const p = doc === null || question === null ? null : passage(doc);
    if (!p || seen(p) !== p || (me.blind && !p.validated)) {
      $("beside").replaceChildren(make("p", { class: "note", text: p ? "The judge is hidden until you have graded." : "" }));
      return;
    }
    looking = setTimeout(told(async () => {
      const { query } = question;
      const found = await get("evidence", { query, doc });
      if (doc !== current || question.query !== query) return;
      $("beside").replaceChildren(make("h2", {}, make("bdi", { text: doc })), make("div", { class: "evidence" }, ...reasons(found, doc)));
      $("beside").scrollTop = 0;
    }), 80);
  };
  wide.addEventListener("change", drawBeside);

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
      const better = () => { $("compare").close(); prefer(each, pair[pair[0] === each ? 1 : 0]); };
      return make("div", {}, make("h3", {}, make("bdi", { text: p.doc })),
        make("p", { class: "note", text: `${facts}, ${p.grade === null ? "no grade" : `grade ${p.grade}`}${p.source === null ? "" : `, ${p.source}`}` }),
        button(pair[0] === each ? "← This one is better" : "This one is better →", better, { class: "better" }),
        make("p", { class: "text", dir: "auto" }, ...marking(p.text, question.text)));
    }));
    marked = null;
    for (const each of document.querySelectorAll(".passage.marked")) each.classList.remove("marked");
    say("");
    $("compare").showModal();
  });

  $("compare").addEventListener("keydown", (event) => {
    const at = { ArrowLeft: 0, 1: 0, ArrowRight: 1, 2: 1 }[event.key];
    if (at === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    $("compare").querySelectorAll(".better")[at].click();
  });

  // -------------------------------------------------------------------------------- recent

  const recent = told(async () => {
    const found = await get("recent");
    $("recent-body").replaceChildren(...(found.length ? found.map((each) => make("li", {},
      make("button", { type: "button", class: "entry", on: { click: () => { $("recent").close(); open(each.query, { doc: each.doc, enter: true }); } } },
        make("b", { text: change(each) }), make("span", { class: "note", text: ` ${time(each.at)}` }),
        make("span", { class: "words", dir: "auto", text: each.question }),
        make("span", { class: "words note", dir: "auto", text: each.text }),
        each.note ? make("span", { class: "words remark", dir: "auto", text: each.note }) : null),
      button("undo", async () => { await undo(each.id); $("recent").close(); }, { class: "plain" })))
      : [make("li", { class: "note", text: "You have said nothing yet." })]));
    if (!$("recent").open) $("recent").showModal();
  });

  // ----------------------------------------------------------------------------- agreement

  const NAMES = { exact: "same grade", "κ, quadratic": "κ, quadratic weights", "AC2, quadratic": "Gwet's AC2, quadratic weights",
    "α, ordinal": "Krippendorff's α, ordinal", "κ, 4+": "κ of 4 or more", "AC1, 4+": "Gwet's AC1 of 4 or more" };
  const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
  let agreed = 0;
  const own = () => progress.find((each) => each.who === me.who) || { labelled: 0, assigned: 0, unsure: 0 };
  const team = () => make("table", {}, make("thead", {}, make("tr", {}, ...["Who", "Labelled", "Given", "Unsure"].map((head, at) =>
    make("th", { text: head, class: at ? "num" : "" })))), make("tbody", {}, ...progress.map((each) => make("tr", {},
    make("td", {}, make("bdi", { text: each.who })), make("td", { class: "num", text: number(each.labelled) }),
    make("td", { class: "num", text: each.assigned ? number(each.assigned) : "–" }), make("td", { class: "num", text: number(each.unsure) })))));
  const two = (each) => make("tr", {}, make("td", {}, make("bdi", { text: each.who === "all" ? "all people" : `${each.who} and ${each.with === "judge" ? "the judge" : each.with}` })),
    ...["exact", "κ, quadratic", "AC2, quadratic", "α, ordinal"].map((name) => {
      const found = each.figures[name];
      const ci = found && found.ci ? ` (${figure(found.ci[0])} to ${figure(found.ci[1])})` : "";
      return make("td", { class: "num", text: found ? figure(found.value) + ci : "–" });
    }), make("td", { class: "num", text: each.figures["α, ordinal"].items }));
  const drawAgreement = told(async () => {
    const mine = ++agreed;
    const done = own();
    const validated = me.settles ? questions.reduce((sum, each) => sum + each.validated, 0) : done.labelled;
    const start = make("span", {}, me.settles ? "Labelled " : "Validated ", make("b", { text: number(validated) }),
      ` of ${number(me.settles ? total : done.assigned || total)}`);
    $("progress").replaceChildren(start);
    if (!progress.length) { $("agreement-body").replaceChildren(explain(0)); return; }
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
    const between = found.people.length ? [make("h3", { text: "Between people, and with the judge" }),
      make("table", {}, make("thead", {}, make("tr", {}, ...["", "same", "κ", "AC2", "α", "passages"].map((head, at) =>
        make("th", { text: head, class: at ? "num" : "" })))), make("tbody", {}, ...found.people.map(two)))] : [];
    $("agreement-body").replaceChildren(explain(found.pairs, found.changed), ...(found.pairs ? [table,
      make("h3", { text: "The judge's grades (rows) and people's (columns)" }), crossed] : []), ...between,
      make("h3", { text: "Progress" }), team());
  });
  const explain = (pairs, changed = 0) => make("p", { class: "note", text: pairs
    ? `${counted(pairs, "passage")} that the judge and ${me.settles ? "people" : "you"} graded; ${number(changed)} otherwise. ` +
      "Who corrects only what looks wrong makes the judge look worse than it is, and who sees its grade tends to agree: " +
      "for an honest figure hide the judge (h) and grade what is drawn at random (g)."
    : "Nothing is validated yet. Draw one at random (g) and grade it (1–5), or agree with its grade (v)." });

  // ---------------------------------------------------------------------------------- keys

  const root = document.documentElement;
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = dark === "dark" ? "light" : "dark";
  });
  $("undo").addEventListener("click", () => undo());
  $("random").addEventListener("click", () => draw("random"));
  $("next").addEventListener("click", () => draw("gain"));
  $("last").addEventListener("click", () => recent());
  $("blind").addEventListener("click", hide);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("progress").addEventListener("click", told(async () => {
    $("agreement").showModal();
    $("health").replaceChildren(...(await get("health")).map((line) => make("p", { class: "note", text: line })));
  }));
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
    u: () => undo(), g: () => draw("random"), o: () => draw("gain"), h: () => hide(), l: () => recent(),
    s: () => current && doubt(current),
    m: () => current && remark(current),
    v: () => current && validate(current),
    r: () => current && toggleEvidence(current),
    c: () => current && compare(current),
    "/": () => { document.body.dataset.view = "list"; $("search").select(); $("search").focus(); },
    "?": () => $("keys").showModal(),
  };
  for (const grade of [1, 2, 3, 4, 5]) KEYS[grade] = () => current && label(current, { grade });
  const MOVES = "jknpArrowDownArrowUpArrowRightArrowLeft"; // these may be held down
  // Caps Lock is no Shift, and a digit is one on keyboards that want Shift for it.
  const meant = ({ key, code, shiftKey }) => {
    if (/^[a-z]$/i.test(key)) return shiftKey ? key.toUpperCase() : key.toLowerCase();
    return !shiftKey && /^Digit[1-5]$/.test(code) ? code.slice(5) : key;
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("textarea")) return;
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
    me = { who: set.who, settles: set.settles, blind: set.blind };
    blind = set.blind;
    $("blind").hidden = set.blind || set.settles;
    $("holes").hidden = !set.holes;
    $("next").title = set.settles ? "Go to what people disagree on most (o)" : "Go to what would tell most (o)";
    $("name").textContent = visible(set.name);
    document.title = visible(`${set.name} · rankproof`);
    $("facts").textContent = $("facts").title = visible(`Judge: ${set.judge} · you are ${set.who}${set.settles ? ", settling" : set.blind ? ", blind to the judge" : ""}`);
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
