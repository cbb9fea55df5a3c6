// Themes, tables that are sorted and searched, charts with their data: all that a report does in a browser.
"use strict";
const $ = (query, within = document) => [...within.querySelectorAll(query)];
const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
const shortest = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const shown = value => Math.abs(value) < 1e-3 && value ? value.toExponential(2) : exact.format(value);

// A number as the tiles have it, with its unit: 1.45 M samples/s, 899 us, 419,943 rows.
function read(value, { unit } = {}) {
  if (typeof value !== "number") return value;
  const [scale, letter] = Math.abs(value) >= 9.995e8 ? [1e9, " G"] : Math.abs(value) >= 9.995e5 ? [1e6, " M"] : [1, ""];
  const text = Math.abs(value) < 1e-3 && value ? value.toExponential(2)
    : letter || !Number.isInteger(value) || unit?.endsWith("/s") ? three.format(value / scale) : whole.format(value);
  return text + letter + (unit ? ` ${unit}` : "");
}
const readAll = (values, axis) => [values].flat().map((each, at, all) =>
  read(each, at + 1 < all.length ? {} : axis)).join(" to ");

// A colour of the style sheet as the browser has it now; a chart's canvas knows no light-dark().
const probe = document.body.appendChild(document.createElement("span"));
const colour = name => {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};

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
const UNITS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, M: 1e6, G: 1e9 };
function worth(text) {
  const match = /^(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([a-zA-Z%]*)/.exec(text);
  return match ? Number(match[1].replaceAll(",", "")) * (UNITS[match[2]] ?? 1) : NaN;
}
const cells = row => [...row.cells].map(cell => cell.textContent);

// Rows by a column's numbers, where most of its cells are such, else by its texts; what is no number is last.
function sorted(rows, column, sign) {
  const keyed = rows.map(row => ({ row, text: row.cells[column].textContent }));
  for (const each of keyed) each.value = worth(each.text);
  const numbers = keyed.filter(({ value }) => !isNaN(value)).length > rows.length / 2;
  const texts = (a, b) => sign * a.text.localeCompare(b.text, "en", { numeric: true });
  const values = (a, b) => isNaN(a.value) - isNaN(b.value) || sign * (a.value - b.value);
  return keyed.sort(numbers ? values : texts).map(({ row }) => row);
}

function setUpTable(box) {
  const table = box.querySelector("table"), heads = $("thead th", table), body = table.tBodies[0];
  const rows = [...body.rows], texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const order = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    heads.forEach(each => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    body.append(...sorted(rows, column, order === "ascending" ? 1 : -1));
  }));
  const search = box.querySelector("input"), told = box.querySelector("output");
  search?.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const row of rows) row.hidden = !texts.get(row).includes(wanted);
    told.value = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
  });
  box.querySelector("button.csv").addEventListener("click", () => {
    const left = [...body.rows].filter(row => !row.hidden);
    save(table.caption.textContent, [heads.map(head => head.textContent), ...left.map(cells)]);
  });
}

function setUpHeat(figure) {
  const heads = $("thead th", figure), told = figure.querySelector("output");
  figure.addEventListener("mouseover", ({ target }) => {
    if (target.tagName !== "TD") return;
    const row = target.parentNode.cells[0].textContent, column = heads[target.cellIndex].textContent;
    told.value = `${row}, ${column}: ${target.textContent}`;
  });
  figure.querySelector("button.csv").addEventListener("click", () =>
    save(figure.querySelector("caption").textContent, $("tr", figure).map(cells)));
}

// Charts: {kind, x, y, labels, stacked, key, series: [{name, colour, form, alone, points}]}, points being [x, y] of
// lines, [label, value] of bars, [label, [from, to]] of spans.
const across = spec => spec.kind === "across" || spec.kind === "spans";

function dataset(spec, { name, colour: own, form, alone, points }) {
  const drawn = colour(own), dots = form === "dots", band = form === "band";
  const common = {
    label: name, data: points.map(([x, y]) => across(spec) ? { x: y, y: x } : { x, y }),
    borderColor: drawn, backgroundColor: band ? colour("band") : drawn,
  };
  if (spec.kind !== "lines") return {
    ...common, borderWidth: 0, borderRadius: 2, minBarLength: 1, skipNull: true, grouped: !alone,
    categoryPercentage: .8, barPercentage: alone ? .7 : .95,
  };
  return {
    ...common, showLine: !dots, borderWidth: 1.8, borderDash: form === "dashed" ? [5, 4] : [],
    fill: band ? "-1" : false, pointRadius: dots ? 5 : points.length < 25 ? 3 : 0, pointHitRadius: 8,
    pointHoverRadius: 6,
  };
}

// Words in lines of so many letters.
const folded = (text, most) => text.split(" ").reduce((lines, word) => {
  const fits = lines.length && `${lines.at(-1)} ${word}`.length <= most;
  return fits ? [...lines.slice(0, -1), `${lines.at(-1)} ${word}`] : [...lines, word];
}, []);

// Of a logarithmic scale: powers of ten where there are several; twos and fives, too, where there are few; else all.
function isLabelled(value, { min, max }) {
  const decades = Math.log10(max / min), first = Number(value.toExponential().split("e")[0]);
  return decades < 1 || first === 1 || decades < 3 && (first === 2 || first === 5);
}
function axis(of, numbers, flat, more) {
  const soft = colour("soft"), line = colour("line");
  const ticks = { color: soft, autoSkip: !flat, maxRotation: numbers ? 0 : 50 };
  if (numbers) ticks.callback = value => shortest.format(value);
  else if (flat) ticks.callback = function (value) {
    return folded(this.getLabelForValue(value), this.chart.width / 17);
  };
  return {
    type: numbers ? of.log ? "logarithmic" : "linear" : "category", ticks, grid: { color: line },
    border: { color: line }, title: { display: !!of.title, text: of.title, color: soft },
    min: of.least ?? undefined, max: of.most ?? undefined, ...more,
    afterBuildTicks: numbers && of.log
      ? scale => { scale.ticks = scale.ticks.filter(({ value }) => isLabelled(value, scale)); } : undefined,
  };
}

function config(spec) {
  const bars = spec.kind !== "lines", flat = across(spec), alone = spec.series.some(each => each.alone);
  const categories = { stacked: spec.stacked, labels: spec.labels, offset: true }, values = { stacked: spec.stacked };
  const label = ({ raw: { x, y }, dataset }) => {
    const value = bars && flat ? x : y, axis = bars && flat ? spec.x : spec.y;
    return `${dataset.label}: ${bars ? "" : `${read(x, spec.x)}, `}${readAll(value, axis)}`;
  };
  return {
    type: bars ? "bar" : "scatter", data: { datasets: spec.series.map(each => dataset(spec, each)) },
    options: {
      animation: false, maintainAspectRatio: false, indexAxis: flat ? "y" : "x",
      interaction: bars && !alone ? { mode: "index", axis: flat ? "y" : "x", intersect: false }
        : { mode: "nearest", intersect: false },
      onHover: (event, [first]) =>
        light(spec.key, first && bars ? spec.series[first.datasetIndex].points[first.index][0] : null),
      scales: {
        x: axis(spec.x, !bars || flat, flat, bars && !flat ? categories : values),
        y: axis(spec.y, !flat, flat, flat ? categories : values),
      },
      plugins: {
        legend: {
          display: spec.series.length > 1,
          labels: { color: colour("ink"), boxWidth: 14, boxHeight: bars ? 10 : 2 },
        },
        tooltip: { callbacks: { label, title: items => bars ? items[0]?.label : "" } },
      },
    },
  };
}

// What a chart's bar and a table's row are both of is lit in both.
const charts = [];
function light(key, name) {
  if (!key) return;
  for (const row of $(`.table[data-key="${key}"] tbody tr`))
    row.classList.toggle("lit", row.cells[0].textContent === name);
}
function point({ chart }, active) {
  chart.setActiveElements(active);
  chart.tooltip.setActiveElements(active, { x: 0, y: 0 });
  chart.render();           // update() would take the pointer's last place over the canvas for a new event
}
function setUpRows(box) {
  const elements = ({ spec }, name) => spec.series.flatMap(({ points }, datasetIndex) =>
    points.flatMap(([of], index) => of === name ? [{ datasetIndex, index }] : []));
  const over = ({ target }) => {
    const name = target.closest("tbody tr")?.cells[0].textContent;
    const linked = charts.filter(({ spec }) => spec.key === box.dataset.key && spec.kind !== "lines");
    // In the next frame: Chart.js hears late that the pointer has left its canvas.
    requestAnimationFrame(() => linked.forEach(entry => point(entry, elements(entry, name))));
  };
  box.addEventListener("mouseover", over);
  box.addEventListener("mouseleave", over);
}

// The arrow keys: points of a series, and the series.
function walk(entry, event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step && !turn) return;
  event.preventDefault();
  const { series } = entry.spec, next = entry.series + (turn ?? 0);
  entry.series = (next + series.length) % series.length;
  const { name, points } = series[entry.series];
  const [names, values] = across(entry.spec) ? [entry.spec.y, entry.spec.x] : [entry.spec.x, entry.spec.y];
  entry.index = Math.min(Math.max(entry.index + (step ?? 0), 0), points.length - 1);
  point(entry, [{ datasetIndex: entry.series, index: entry.index }]);
  const [x, y] = points[entry.index];
  entry.told.value = `${name}: ${read(x, names)}, ${readAll(y, values)}`;
}

// A chart's numbers, a point a row.
function long(spec) {
  const [names, values] = across(spec) ? [spec.y, spec.x] : [spec.x, spec.y], what = values.title || "value";
  const ends = spec.kind === "spans" ? [`${what}, from`, `${what}, to`] : [what];
  return [["series", names.title || "name", ...ends],
    ...spec.series.flatMap(({ name, points }) => points.map(([x, y]) => [name, x, ...[y].flat()]))];
}
function tabled(rows) {
  const box = document.createElement("div"), table = box.appendChild(document.createElement("table"));
  box.className = "scroll";
  box.tabIndex = 0;
  rows.forEach((row, number) => {
    const line = table.insertRow();
    for (const cell of row)
      line.appendChild(document.createElement(number ? "td" : "th")).textContent =
        typeof cell === "number" ? shown(cell) : cell;
  });
  return box;
}

function setUpChart(figure) {
  const spec = JSON.parse(figure.querySelector("script").textContent), canvas = figure.querySelector("canvas");
  const chart = new Chart(canvas, config(spec)), told = figure.querySelector("output");
  const entry = { spec, canvas, chart, told, series: 0, index: -1 };
  charts.push(entry);
  canvas.addEventListener("keydown", event => walk(entry, event));
  figure.querySelector("button.csv").addEventListener("click", () =>
    save(figure.querySelector("figcaption").textContent, long(spec)));
  figure.querySelector("button.data").addEventListener("click", ({ target }) => {
    const there = figure.querySelector(".scroll");
    target.setAttribute("aria-expanded", !there);
    if (there) there.remove(); else figure.append(tabled(long(spec)));
  });
}

function setUpTheme(button) {
  const names = ["auto", "light", "dark"];
  const repaint = () => charts.forEach(entry => {
    entry.chart.destroy();
    entry.chart = new Chart(entry.canvas, config(entry.spec));
  });
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

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
setUpTheme(document.querySelector("#theme"));
$(".table").forEach(setUpTable);
$(".table[data-key]").forEach(setUpRows);
$("figure.heat").forEach(setUpHeat);
$("figure.chart").forEach(setUpChart);
root.dataset.ready = Math.round(performance.now());
