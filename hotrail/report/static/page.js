// Themes, tables that are sorted and searched, charts with their data: all that a report does in a browser.
"use strict";
const $ = (query, within = document) => [...within.querySelectorAll(query)];
const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
const shortest = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const shown = value => Math.abs(value) < 1e-3 && value ? value.toExponential(2) : exact.format(value);

// A colour of the style sheet as the browser has it now; a chart's canvas knows no light-dark().
const probe = document.body.appendChild(document.createElement("span"));
const colour = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };

function save(name, rows) {
  const quoted = cell => /[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell;
  const text = rows.map(row => row.map(quoted).join(",") + "\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Tables: what a cell is worth is read off it, with its unit.
const UNITS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, "%": 1, x: 1 };
function worth(text) {
  const match = /^(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([a-zA-Z%]*)/.exec(text);
  return match ? Number(match[1].replaceAll(",", "")) * (UNITS[match[2]] ?? 1) : NaN;
}
const cells = row => [...row.cells].map(cell => cell.textContent);

function setUpTable(box) {
  const table = box.querySelector("table"), body = table.tBodies[0], rows = [...body.rows], heads = $("thead th", table);
  const texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const order = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    const keyed = rows.map(row => [row, row.cells[column].textContent]).map(([row, text]) => [row, text, worth(text)]);
    const numbers = keyed.filter(([, , value]) => !isNaN(value)).length > rows.length / 2;
    const sign = order === "ascending" ? 1 : -1;
    keyed.sort((a, b) => !numbers ? sign * a[1].localeCompare(b[1], "en", { numeric: true })
      : isNaN(a[2]) - isNaN(b[2]) || sign * (a[2] - b[2]));
    heads.forEach(each => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    body.append(...keyed.map(([row]) => row));
  }));
  const search = box.querySelector("input"), told = box.querySelector("output");
  search?.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const row of rows) row.hidden = !texts.get(row).includes(wanted);
    told.value = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
  });
  box.querySelector("button.csv").addEventListener("click", () =>
    save(table.caption.textContent, [heads.map(head => head.textContent), ...[...body.rows].filter(row => !row.hidden).map(cells)]));
}

function setUpHeat(figure) {
  const heads = $("thead th", figure), told = figure.querySelector("output");
  figure.addEventListener("mouseover", ({ target }) => {
    if (target.tagName === "TD") told.value = `${target.parentNode.cells[0].textContent}, ${heads[target.cellIndex].textContent}: ${target.textContent}`;
  });
  figure.querySelector("button.csv").addEventListener("click", () =>
    save(figure.querySelector("caption").textContent, $("tr", figure).map(cells)));
}

// Charts: {kind, x, y, series: [{name, colour, form, points: [[x, y] or [label, [from, to]]]}], labels, stacked, key}
const across = spec => spec.kind === "across" || spec.kind === "spans";
function dataset(spec, series) {
  const own = colour(series.colour), point = ([x, y]) => across(spec) ? { x: y, y: x } : { x, y };
  const common = { label: series.name, data: series.points.map(point), borderColor: own, backgroundColor: own };
  if (spec.kind !== "lines")
    return { ...common, borderWidth: 0, skipNull: true, grouped: !series.alone, minBarLength: 1, borderRadius: 2, categoryPercentage: .8,
      barPercentage: series.alone ? .7 : .95 };
  const dots = series.form === "dots";
  return { ...common, showLine: !dots, borderWidth: 1.8, borderDash: series.form === "dashed" ? [5, 4] : [],
    pointRadius: dots ? 5 : series.points.length < 25 ? 3 : 0, pointHitRadius: 8, pointHoverRadius: 6,
    fill: series.form === "band" ? "-1" : false, ...(series.form === "band" && { backgroundColor: colour("band") }) };
}

// Words in lines of so many letters.
const folded = (text, most) => text.split(" ").reduce((lines, word) => {
  if (lines.length && `${lines.at(-1)} ${word}`.length <= most) lines.push(`${lines.pop()} ${word}`); else lines.push(word);
  return lines;
}, []);

function axis(of, flat, more = {}) {
  const ten = value => Number.isInteger(Math.round(1e6 * Math.log10(value)) / 1e6);
  const ticks = { color: colour("soft"), autoSkip: !flat, maxRotation: of.numbers ? 0 : 50 };
  if (of.numbers) ticks.callback = value => of.log && !ten(value) ? "" : shortest.format(value);
  else if (flat) ticks.callback = function (value) { return folded(this.getLabelForValue(value), this.chart.width / 17); };
  return { type: of.numbers ? of.log ? "logarithmic" : "linear" : "category", title: { display: !!of.title, text: of.title, color: colour("soft") },
    grid: { color: colour("line") }, border: { color: colour("line") }, ticks, min: of.least ?? undefined, max: of.most ?? undefined, ...more };
}

function config(spec) {
  const bars = spec.kind !== "lines", flat = across(spec), categories = { labels: spec.labels, offset: true };
  const x = { ...spec.x, numbers: !bars || flat }, y = { ...spec.y, numbers: !bars || !flat };
  const told = item => {
    const [from, to] = Array.isArray(item.raw.x) ? item.raw.x : [];
    const value = to === undefined ? shown(bars && flat ? item.raw.x : item.raw.y) : `${shown(from)} to ${shown(to)}`;
    return `${item.dataset.label}: ${bars ? "" : `${shown(item.raw.x)}, `}${value}`;
  };
  return { type: bars ? "bar" : "scatter", data: { datasets: spec.series.map(series => dataset(spec, series)) },
    options: { animation: false, maintainAspectRatio: false, indexAxis: flat ? "y" : "x",
      interaction: bars && !spec.series.some(series => series.alone) ? { mode: "index", axis: flat ? "y" : "x", intersect: false } : { mode: "nearest", intersect: false },
      onHover: (event, [first]) => light(spec.key, first && bars ? label(spec, first) : null),
      scales: { x: axis(x, flat, { stacked: spec.stacked, ...(bars && !flat && categories) }),
        y: axis(y, flat, { stacked: spec.stacked, ...(flat && categories) }) },
      plugins: { legend: { display: spec.series.length > 1, labels: { color: colour("ink"), boxWidth: 14, boxHeight: bars ? 10 : 2 } },
        tooltip: { callbacks: { label: told, title: items => bars ? items[0]?.label : "" } } } } };
}
const label = (spec, { datasetIndex, index }) => spec.series[datasetIndex].points[index][0];

// What a chart's bar and a table's row are both of is lit in both.
const charts = [];
function light(key, name) {
  if (!key) return;
  $(`.table[data-key="${key}"] tbody tr`).forEach(row => row.classList.toggle("lit", row.cells[0].textContent === name));
}
function point(entry, active) {
  entry.chart.setActiveElements(active);
  entry.chart.tooltip.setActiveElements(active, { x: 0, y: 0 });
  entry.chart.render();     // update() would take the pointer's last place over the canvas for a new event
}
function setUpRows(box) {
  const over = ({ target }) => {
    const name = target.closest("tbody tr")?.cells[0].textContent;
    const linked = charts.filter(each => each.spec.key === box.dataset.key && each.spec.kind !== "lines");
    // In the next frame: Chart.js hears late that the pointer has left its canvas.
    requestAnimationFrame(() => linked.forEach(entry => point(entry, name === undefined ? [] :
      entry.spec.series.flatMap(({ points }, datasetIndex) =>
        points.flatMap(([of], index) => of === name ? [{ datasetIndex, index }] : [])))));
  };
  box.addEventListener("mouseover", over);
  box.addEventListener("mouseleave", over);
}

function walk(entry, event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step && !turn) return;
  event.preventDefault();
  const { spec } = entry, count = spec.series.length;
  entry.series = (entry.series + (turn ?? 0) + count) % count;
  const points = spec.series[entry.series].points;
  entry.index = Math.min(Math.max(entry.index + (step ?? 0), 0), points.length - 1);
  point(entry, [{ datasetIndex: entry.series, index: entry.index }]);
  const [x, y] = points[entry.index];
  entry.told.value = `${spec.series[entry.series].name}: ${typeof x === "number" ? shown(x) : x}, ${[y].flat().map(shown).join(" to ")}`;
}

function long(spec) {
  const [names, values] = across(spec) ? [spec.y, spec.x] : [spec.x, spec.y], what = values.title || "value";
  const head = ["series", names.title || "name", ...(spec.kind === "spans" ? [`${what}, from`, `${what}, to`] : [what])];
  return [head, ...spec.series.flatMap(({ name, points }) => points.map(([x, y]) => [name, x, ...[y].flat()]))];
}

function setUpChart(figure) {
  const spec = JSON.parse(figure.querySelector("script").textContent), canvas = figure.querySelector("canvas");
  const told = figure.querySelector("output"), entry = { spec, canvas, told, series: 0, index: -1, chart: new Chart(canvas, config(spec)) };
  charts.push(entry);
  canvas.addEventListener("keydown", event => walk(entry, event));
  figure.querySelector("button.csv").addEventListener("click", () => save(figure.querySelector("figcaption").textContent, long(spec)));
  figure.querySelector("button.data").addEventListener("click", ({ target }) => {
    const there = figure.querySelector(".scroll");
    target.setAttribute("aria-expanded", !there);
    if (there) return there.remove();
    const box = figure.appendChild(document.createElement("div")), table = box.appendChild(document.createElement("table"));
    box.className = "scroll";
    box.tabIndex = 0;
    long(spec).forEach((row, number) => row.reduce((line, cell) => {
      line.appendChild(document.createElement(number ? "td" : "th")).textContent = typeof cell === "number" ? shown(cell) : cell;
      return line;
    }, table.insertRow()));
  });
}

function repaint() {
  for (const entry of charts) {
    entry.chart.destroy();
    entry.chart = new Chart(entry.canvas, config(entry.spec));
  }
}
function setUpTheme(button) {
  const names = ["auto", "light", "dark"];
  const choose = name => {
    if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    try { localStorage.setItem("hotrail-theme", name); } catch { /* a browser may keep nothing for a file */ }
    repaint();
  };
  let kept = "auto";
  try { kept = localStorage.getItem("hotrail-theme") ?? kept; } catch { /* see above */ }
  button.addEventListener("click", () => choose(names[(names.indexOf(root.dataset.theme ?? "auto") + 1) % 3]));
  choose(kept);
  dark.addEventListener("change", repaint);
}

setUpTheme(document.querySelector("#theme"));
$(".table").forEach(setUpTable);
$(".table[data-key]").forEach(setUpRows);
$("figure.heat").forEach(setUpHeat);
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
$("figure.chart").forEach(setUpChart);
root.dataset.ready = Math.round(performance.now());
