"use strict";
(function () {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const ui = data.ui;
  const root = document.documentElement;

  function color(name) { return getComputedStyle(root).getPropertyValue("--" + name).trim(); }

  function look() {
    const font = getComputedStyle(document.body).fontFamily;
    const words = { labelColor: color("soft"), titleColor: color("soft"), labelFont: font, titleFont: font, titleFontWeight: 500, labelFontSize: 12, titleFontSize: 12 };
    return {
      background: "transparent", font: font, view: { stroke: null },
      axis: Object.assign({ gridColor: color("grid"), domainColor: color("line"), tickColor: color("line"), tickCount: 6 }, words),
      legend: Object.assign({ symbolType: "circle", symbolStrokeWidth: 0, symbolSize: 90, symbolOpacity: 1 }, words),
      rule: { color: color("soft") },
      // lines: no green, red, amber or grey, which are verdicts
      range: { category: ["#3f74e8", "#b5479d", "#2f9fc0", "#7d5fd3", "#8d6748", "#1f4fa3", "#d878bd", "#0f7f95", "#a98be8", "#5d4a3a"] }
    };
  }

  const drawn = new Set();

  function draw(places) {
    if (!window.vegaEmbed) return Promise.resolve();
    const config = look();
    return Promise.all(Array.from(places).filter(function (place) { return place.offsetWidth > 0 && !place.closest("details:not([open])"); }).map(function (place) {
      drawn.add(place);
      const spec = data.charts[Number(place.id.slice("chart-".length))];
      return window.vegaEmbed(place, spec, { ast: true, renderer: "svg", actions: false, config: config, tooltip: { theme: "custom" } });
    }));
  }

  function make(tag, name, text) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  document.getElementById("theme").addEventListener("click", function () {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    draw(drawn);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { draw(drawn); });

  // a folded section has no width to draw in: its charts are drawn when it is opened
  document.querySelectorAll("section.fold > details").forEach(function (fold) {
    fold.addEventListener("toggle", function () {
      draw(Array.from(fold.querySelectorAll(".chart")).filter(function (place) { return fold.open && !drawn.has(place); }));
    });
  });
  function unfold() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && target.querySelector(":scope > details");
    if (fold) { fold.open = true; target.scrollIntoView(); }
  }
  window.addEventListener("hashchange", unfold);
  window.addEventListener("beforeprint", function () { document.querySelectorAll("details").forEach(function (fold) { fold.open = true; }); });

  const ranges = document.getElementById("ranges");
  if (ranges) ranges.addEventListener("click", function () {
    ranges.setAttribute("aria-pressed", String(root.classList.toggle("with-ranges")));
  });

  document.querySelectorAll("button.copy").forEach(function (button) {
    const before = button.textContent;
    button.addEventListener("click", function () {
      const place = document.getElementById(button.dataset.copy);
      const done = function () { button.textContent = ui.copied; setTimeout(function () { button.textContent = before; }, 1500); };
      const select = function () { window.getSelection().selectAllChildren(place); if (document.execCommand("copy")) done(); };
      if (navigator.clipboard) navigator.clipboard.writeText(place.textContent).then(done, select); else select();
    });
  });

  unfold();
  draw(document.querySelectorAll(".chart")).then(function () { root.dataset.drawn = "yes"; });

  const held = data.explorer;
  if (!held || !held.items.length) return;
  const byId = function (id) { return document.getElementById(id); };
  const modelA = byId("model-a"), modelB = byId("model-b"), which = byId("which"), task = byId("task"), search = byId("search");
  const step = 20;
  let limit = step;

  function option(select, value, text) { const one = make("option", "", text); one.value = value; select.append(one); }
  held.models.forEach(function (name, number) { option(modelA, number, name); option(modelB, number, name); });
  modelA.value = held.a; modelB.value = held.b;
  ["a-not-b", "b-not-a", "both-wrong", "both-right", "all"].forEach(function (key) { option(which, key, ui.which[key]); });
  if (held.models.length === 1) which.value = "all";
  option(task, "", ui.all_tasks);
  Array.from(new Set(held.items.map(function (item) { return item.task; }))).forEach(function (name) { option(task, name, name); });

  const tests = {
    "a-not-b": function (a, b) { return a === 1 && b === 0; },
    "b-not-a": function (a, b) { return a === 0 && b === 1; },
    "both-wrong": function (a, b) { return a === 0 && b === 0; },
    "both-right": function (a, b) { return a === 1 && b === 1; },
    "all": function () { return true; }
  };

  function matches(item) {
    const wanted = search.value.trim();
    if (task.value && item.task !== task.value) return false;
    if (!tests[which.value](item.hits[modelA.value], item.hits[modelB.value])) return false;
    if (!wanted) return true;
    const text = item.text ? item.text.map(function (piece) { return piece[1]; }).join("") : "";
    return (item.answer + " " + text).includes(wanted);
  }

  function answers(item, number) {
    const score = item.scores[number], hit = item.hits[number];
    const line = make("div", "answer " + (hit === 1 ? "right" : hit === 0 ? "wrong" : ""));
    line.append(make("span", "sign", hit === 1 ? "✓" : hit === 0 ? "✗" : "–"));
    const model = make("span", "model", held.models[number]);
    model.title = held.models[number];
    line.append(model);
    const words = make("span", "words");
    if (score) {
      score[3].forEach(function (word) {
        const text = held.words[word];
        words.append(make("span", text === item.answer ? "word hit" : "word", text));
      });
      const rank = score[0] > 0 ? ui.rank + " " + score[0] : ui.no_rank;
      words.append(make("span", "quiet", rank + (score[2] === null ? "" : " · " + ui.word_rank + " " + score[2])));
    }
    line.append(words);
    return line;
  }

  function card(item) {
    const box = make("article", "item");
    const facts = make("div", "facts");
    [item.task, item.source, item.tag, item.distance >= 0 ? ui.distance + " " + item.distance : "", ui.answer + ": " + item.answer]
      .filter(Boolean).forEach(function (text) { facts.append(make("span", "", text)); });
    box.append(facts);
    if (item.text) {
      const passage = make("p", "passage");
      item.text.forEach(function (piece) { passage.append(make("span", piece[0] === "text" ? "" : piece[0], piece[1])); });
      box.append(passage);
    }
    const pair = make("div", "answers");
    const chosen = Array.from(new Set([Number(modelA.value), Number(modelB.value)]));
    chosen.forEach(function (number) { pair.append(answers(item, number)); });
    box.append(pair);
    const others = held.models.map(function (_, number) { return number; }).filter(function (number) { return !chosen.includes(number); });
    if (others.length) {
      const more = make("details");
      more.append(make("summary", "", ui.others));
      const list = make("div", "answers");
      more.append(list);
      more.addEventListener("toggle", function () {
        if (more.open && !list.childElementCount) others.forEach(function (number) { list.append(answers(item, number)); });
      });
      box.append(more);
    }
    return box;
  }

  function show() {
    const found = held.items.filter(matches);
    byId("count").textContent = ui.count.replace("{found}", found.length).replace("{kept}", held.items.length).replace("{total}", held.total.toLocaleString());
    byId("items").replaceChildren.apply(byId("items"), found.slice(0, limit).map(card));
    byId("more").hidden = found.length <= limit;
  }

  byId("filters").addEventListener("input", function () { limit = step; show(); });
  byId("filters").addEventListener("submit", function (event) { event.preventDefault(); });
  byId("more").addEventListener("click", function () { limit += step; show(); });
  show();
})();
