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
})();
