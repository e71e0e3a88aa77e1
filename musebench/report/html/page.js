/* The page around the charts: theme, table, the chosen report, its steps. */

const byId = (id) => document.getElementById(id);
const parsed = (id) => JSON.parse(byId(id).textContent);
const colour = (place) => `var(--c${place})`;

/* -- theme ------------------------------------------------------------------------------------------- */

const THEMES = ["system", "light", "dark"];

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme").textContent = `Theme: ${name}`;
}

function stored(name) { // a page opened from a file may have no storage
  try {
    if (name) localStorage.setItem("musebench-theme", name);
    return localStorage.getItem("musebench-theme");
  } catch {
    return null;
  }
}

let theme = THEMES.includes(stored()) ? stored() : "system";
setTheme(theme);
byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  stored(theme);
  setTheme(theme);
});

/* -- the table of all reports ------------------------------------------------------------------------- */

const body = byId("table").tBodies[0];
const rows = [...body.rows];

function sortBy(place, falling) {
  const key = (row) => {
    const text = row.cells[place].dataset.sort;
    if (text === undefined || text === "") return null;
    return Number.isNaN(Number(text)) ? text : Number(text);
  };
  const keyed = rows.map((row) => [key(row), row]);
  keyed.sort(([a, first], [b, second]) => {
    if (a === null || b === null) return (a === null) - (b === null); // missing last, whichever way
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return (falling ? -order : order) || Number(first.dataset.report) - Number(second.dataset.report);
  });
  body.append(...keyed.map(([, row]) => row));
}

for (const button of document.querySelectorAll(".sort")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const falling = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
    sortBy(Number(button.dataset.column), falling);
  });
}

let overview = null;

function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const onlyValid = byId("only-valid").checked;
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word)) || (onlyValid && row.classList.contains("invalid"));
    shown += !row.hidden;
  }
  byId("shown").textContent = `${shown} of ${rows.length} shown`;
  if (overview) drawOverview();
}
byId("filter").addEventListener("input", filter);
byId("only-valid").addEventListener("change", filter);

/* -- the picture of all reports ------------------------------------------------------------------------ */

const points = parsed("points");

/* Of the points [x, y] those that no other beats, by x; `better` says for x and y whether more (1) or less (-1)
   is better. */
function frontier(data, [moreX, moreY]) {
  const key = ([x, y]) => [-moreX * x, -moreY * y];
  const ordered = [...data].sort((a, b) => key(a)[0] - key(b)[0] || key(a)[1] - key(b)[1]);
  let least = Infinity;
  const kept = ordered.filter((one) => key(one)[1] < least && ((least = key(one)[1]), true));
  return kept.sort((a, b) => a[0] - b[0]);
}

function drawOverview() {
  const [across, up] = [byId("axis-x").value, byId("axis-y").value];
  const [x, y] = [points.axes[across], points.axes[up]];
  const shown = new Set(rows.filter((row) => !row.hidden).map((row) => Number(row.dataset.report)));
  const places = points.labels.map((_, place) => place)
    .filter((place) => shown.has(place) && x.values[place] !== null && y.values[place] !== null);
  const layer = (chosen, more) => ({ look: "points", colour: colour(0), ...more, places: chosen, data: chosen.map((place) => [x.values[place], y.values[place]]) });
  const layers = [
    layer(places.filter((place) => place !== chosenReport), { size: 4 }),
    layer(places.filter((place) => place === chosenReport), { size: 5.5, filled: true, mark: 3, colour: colour(1), name: "the report below" }),
  ];
  if (x.better && y.better && across !== up) {
    const data = frontier(places.map((place) => [x.values[place], y.values[place]]), [x.better, y.better]);
    layers.push({ look: "line", name: "what no other beats", colour: "var(--quiet)", dash: "4 3", hover: false, data });
  }
  overview = new Chart(byId("chart-overview"), {
    title: `${up} against ${across}`,
    x: { label: across, unit: x.unit, zero: true },
    y: { label: up, unit: y.unit, zero: true },
    layers,
    tip: (place, index) => {
      const report = layers[place].places[index];
      return `${points.labels[report]}\n${across}: ${pretty(x.values[report], x.unit)}\n${up}: ${pretty(y.values[report], y.unit)}`;
    },
    open: (place, index) => choose(layers[place].places[index]),
  });
}

/* -- one report ---------------------------------------------------------------------------------------- */

const cache = new Map();
const shownCharts = {};
let chosenReport = 0;
let current = null;

function details(place) {
  if (!cache.has(place)) cache.set(place, parsed(`details-${place}`));
  return cache.get(place);
}

function choose(place) {
  chosenReport = place;
  current = details(place);
  byId("choice").value = String(place);
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === points.labels.length - 1;
  byId("headline").textContent = current.headline;
  byId("reasons").hidden = current.valid;
  byId("reasons").textContent = current.valid ? "" : `INVALID: ${current.reasons.join("; ")}`;
  for (const row of rows) row.classList.toggle("chosen", Number(row.dataset.report) === place);
  drawLatencies();
  drawTables();
  byId("facts").replaceChildren(...current.facts.map(([name, value]) => pair(name, value)));
  const steps = current.steps;
  const any = Boolean(steps && steps.row.length);
  for (const id of ["chart-pool", "chart-steps", "chart-requests"]) byId(id).replaceChildren();
  byId("step").max = any ? steps.row.length - 1 : 0;
  byId("step").disabled = !any;
  byId("slowest").replaceChildren();
  if (!any) {
    byId("step-name").textContent = "No step was made.";
    byId("step-values").replaceChildren();
    byId("step-requests").textContent = "";
  } else {
    byId("slowest").append(...steps.slowest.map((row) => element("option", { value: steps.row.indexOf(row) }, `step ${row}: ${pretty(steps.seconds[steps.row.indexOf(row)], "s")}`)));
    drawPool();
    drawSteps();
    drawRequests();
    showStep(0);
  }
  if (byId("chart-overview")) drawOverview();
}

function pair(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}

function drawTables() {
  byId("tables").replaceChildren(...current.tables.map((table) => {
    const head = element("tr", {}, element("th", { scope: "col" }, element("span", { class: "quiet" }, "")), ...table.columns.map((name) => element("th", { scope: "col" }, name)));
    const lines = table.rows.map(([name, cells]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map(([text, struck]) => element("td", {}, struck ? element("s", {}, text) : text))));
    const made = element("table", {}, element("caption", {}, table.title), element("thead", {}, head), element("tbody", {}, ...lines));
    const wide = table.columns.length > 3 ? { tabindex: "0", role: "region", "aria-label": table.title } : {};
    return element("div", wide, made, ...table.notes.map((note) => element("p", { class: "quiet" }, note)));
  }));
}

function drawLatencies() {
  const against = byId("against") && byId("against").value;
  const other = against ? details(Number(against)) : null;
  for (const [name, id] of [["ITL", "chart-itl"], ["TTFT", "chart-ttft"]]) {
    const layers = [[current, 0, ""], [other, 1, "7 4"]].filter(([one]) => one).map(([one, place, dash]) => ({
      look: "step", colour: colour(place), dash, name: one.label, data: one.latency[name],
    }));
    if (!layers.some((layer) => layer.data.length)) {
      byId(id).replaceChildren(element("p", { class: "quiet" }, `No sample of ${name}.`));
      continue;
    }
    shownCharts[id] = new Chart(byId(id), {
      title: `${name}: share of samples up to a time`,
      x: { label: name, unit: "s", log: true },
      y: { label: "share of samples", unit: "share", range: [0, 1.02] },
      layers,
      height: 260,
      tip: (place, index) => `${layers[place].name}\n${pretty(layers[place].data[index][1], "share")} within ${pretty(layers[place].data[index][0], "s")}`,
    });
  }
}

function drawPool() {
  const { columns, row } = current.steps;
  const ends = (values) => [...columns.start.map((start, index) => [start, values[index]]), [columns.end.at(-1), values.at(-1)]];
  const layers = [
    { look: "area", colour: colour(1), data: ends(columns.in_use), hover: false },
    { look: "step", name: "cells in use", colour: colour(1), dash: "5 3", data: ends(columns.in_use), hover: false },
    { look: "step", name: "rows", colour: colour(0), data: ends(columns.rows) },
    { look: "points", name: "growth", colour: colour(6), mark: 1, filled: true, size: 4, data: current.growths.map(([at, rows]) => [at, rows]) },
  ];
  shownCharts["chart-pool"] = new Chart(byId("chart-pool"), {
    title: "Pool",
    x: { label: "time since the run started", unit: "s", zero: true },
    y: { label: "cells", unit: "count", zero: true },
    layers,
    tip: (place, index) => {
      if (place === 3) {
        const [at, rows, bytes, copied, took] = current.growths[index];
        return `growth at ${pretty(at, "s")} to ${digits(rows, 9)} rows, ${pretty(bytes, "bytes")}\n${pretty(copied, "bytes")} copied in ${pretty(took, "s")}`;
      }
      const step = Math.min(index, row.length - 1);
      return `step ${row[step]} at ${pretty(columns.start[step], "s")}\nrows: ${digits(columns.rows[step], 9)}\ncells in use: ${digits(columns.in_use[step], 9)}`;
    },
    open: (place, index) => { if (place === 2) showStep(Math.min(index, row.length - 1)); },
  });
}

function drawSteps() {
  const { columns, row, seconds, kind, kinds, what, floor } = current.steps;
  const tokens = row.map((_, index) => columns.decode_tokens[index] + columns.prefill_tokens[index] + columns.padded_tokens[index]);
  const layers = kinds.map((name, number) => {
    const places = row.map((_, index) => index).filter((index) => kind[index] === number && seconds[index] > 0 && tokens[index] > 0);
    return { look: "points", name, mark: number, colour: colour([0, 2, 1][number]), places, data: places.map((index) => [tokens[index], seconds[index]]) };
  });
  if (floor) {
    for (const { colour: same, places } of [...layers]) {
      const data = places.filter((index) => floor[index] > 0).map((index) => [tokens[index], floor[index]]);
      const name = layers.some((layer) => layer.name === "floors" && layer.data.length) ? "" : "floors";
      layers.push({ look: "points", name, colour: same, filled: true, size: 0.8, hover: false, data });
    }
  }
  shownCharts["chart-steps"] = new Chart(byId("chart-steps"), {
    title: "Time of a step",
    x: { label: "tokens of the step, padding included", unit: "count", log: true },
    y: { label: what, unit: "s", log: true },
    layers,
    tip: (place, index) => {
      const step = layers[place].places[index];
      const least = floor ? `, floor ${pretty(floor[step], "s")}` : "";
      return `step ${row[step]}: ${pretty(seconds[step], "s")}${least}\n${columns.decode_tokens[step]} decode, ${columns.prefill_tokens[step]} prefill, ${columns.padded_tokens[step]} padded tokens\n${columns.sequences[step]} sequences`;
    },
    open: (place, index) => showStep(layers[place].places[index]),
  });
}

function drawRequests() {
  const { ids, tokens, ends, messages, phases, spans } = current.requests;
  const looks = [["var(--waiting)", false], [colour(4), false], [colour(0), false], [colour(1), true]];
  const layers = phases.map((name, phase) => ({
    look: "bars", name, colour: looks[phase][0], hollow: looks[phase][1],
    data: spans.filter((span) => span[1] === phase).map(([line, , start, end]) => [line, start, end]),
  }));
  shownCharts["chart-requests"] = new Chart(byId("chart-requests"), {
    title: "Requests",
    x: { label: "time since the run started", unit: "s", zero: true },
    y: { label: "request, by arrival", unit: "count", down: true, range: [-0.6, ids.length - 0.4] },
    layers,
    height: Math.min(Math.max(150, 60 + ids.length * 14), 420),
    tip: (place, index) => {
      const [line, start, end] = layers[place].data[index];
      const [prompt, made] = tokens[line];
      const message = messages[line] ? `\n${messages[line]}` : "";
      return `${ids[line]}: ${phases[place]} for ${pretty(end - start, "s")}, from ${pretty(start, "s")}\n${prompt} prompt tokens, ${made} made, ended: ${ends[line]}${message}`;
    },
    open: (place, index) => showStepAt(layers[place].data[index][1]),
  });
}

/* -- the steps of a report ------------------------------------------------------------------------------ */

function showStepAt(seconds) {
  const starts = current.steps.columns.start;
  let place = starts.findIndex((start) => start > seconds + 1e-12) - 1;
  if (place === -2) place = starts.length - 1;
  showStep(Math.max(place, 0));
}

const MOST_NAMES = 12;

function showStep(place) {
  const { row, count, columns, words, programs, kind, kinds, floor } = current.steps;
  byId("step").value = place;
  byId("step").setAttribute("aria-valuetext", `step ${row[place]} of ${count}`);
  byId("step-back").disabled = place <= 0;
  byId("step-on").disabled = place >= row.length - 1;
  byId("step-name").textContent = `Step ${row[place]} of ${count} (from 0): ${kinds[kind[place]]}`;
  const ran = Object.entries(programs).filter(([, column]) => column[place]).map(([name, column]) => `${name || "the program"} × ${column[place]}`);
  byId("step-values").replaceChildren(
    ...words.map(([name, word, unit]) => pair(word, unit === "count" ? digits(columns[name][place], 12) : pretty(columns[name][place], unit))),
    pair("floor", floor ? pretty(floor[place], "s") : "-"),
    pair("programs", ran.join(", ") || "-"),
  );
  const [start, end] = [columns.start[place], columns.end[place]];
  const { ids, phases, spans } = current.requests;
  const texts = phases.map((name, phase) => {
    const mine = spans.filter((span) => span[1] === phase && span[2] < end && span[3] > start).map((span) => ids[span[0]]);
    const more = mine.length > MOST_NAMES ? ` and ${mine.length - MOST_NAMES} more` : "";
    return mine.length ? `${name} (${mine.length}): ${mine.slice(0, MOST_NAMES).join(", ")}${more}.` : "";
  });
  byId("step-requests").textContent = texts.filter(Boolean).join(" ");
  for (const id of ["chart-pool", "chart-requests"]) shownCharts[id].showMoment(start);
}

byId("step").addEventListener("input", () => showStep(Number(byId("step").value)));
byId("step-back").addEventListener("click", () => showStep(Math.max(Number(byId("step").value) - 1, 0)));
byId("step-on").addEventListener("click", () => showStep(Math.min(Number(byId("step").value) + 1, Number(byId("step").max))));
byId("slowest").addEventListener("change", () => showStep(Number(byId("slowest").value)));

byId("choice").addEventListener("change", () => choose(Number(byId("choice").value)));
byId("previous").addEventListener("click", () => choose(chosenReport - 1));
byId("next").addEventListener("click", () => choose(chosenReport + 1));
if (byId("against")) byId("against").addEventListener("change", drawLatencies);
for (const button of document.querySelectorAll(".choose")) {
  button.addEventListener("click", () => {
    choose(Number(button.closest("tr").dataset.report));
    byId("report").scrollIntoView();
  });
}
if (byId("axis-x")) {
  for (const id of ["axis-x", "axis-y"]) byId(id).addEventListener("change", drawOverview);
}
choose(0);
