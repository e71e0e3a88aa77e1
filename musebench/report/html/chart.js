"use strict";
/* A small chart: lines, areas, points and bars in SVG, with zoom along x, hover, and the same by keyboard.
   Text goes into the page as text only, never as markup. */

// The namespace is read off the page, so that no address stands in this file.
const SVG_NAMESPACE = document.getElementById("svg-root").namespaceURI;
const MARGIN = { left: 70, right: 14, top: 10, bottom: 40 };
const FARTHEST_HOVER = 60; // pixels

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG_NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

/* -- numbers as a person reads them ------------------------------------------------------------------- */

function digits(value, most = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return String(Number(value.toPrecision(3)));
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(most, Math.ceil(Math.log10(size))) });
}

function prefixed(value, steps) {
  for (const [size, unit] of steps) {
    if (Math.abs(value) >= size) return `${digits(value / size)} ${unit}`;
  }
  const [size, unit] = steps[steps.length - 1];
  return `${digits(value / size)} ${unit}`;
}

const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

function pretty(value, unit) {
  if (value === null || value === undefined) return "-";
  if (value === 0) return "0";
  if (unit === "s") return prefixed(value, SECONDS);
  if (unit === "bytes") return prefixed(value, BYTES);
  if (unit === "share") return `${digits(value * 100, 3)} %`;
  return digits(value);
}

/* -- axes -------------------------------------------------------------------------------------------- */

class Axis {
  constructor(low, high, from, to, log, unit) {
    this.log = log && low > 0;
    if (high <= low) high = low + (Math.abs(low) || 1);
    Object.assign(this, { low, high, from, to, unit });
    this.bottom = this.log ? Math.log(low) : low;
    this.scale = (to - from) / ((this.log ? Math.log(high) : high) - this.bottom);
  }

  place(value) {
    return this.from + ((this.log ? Math.log(value) : value) - this.bottom) * this.scale;
  }

  value(place) {
    const at = (place - this.from) / this.scale + this.bottom;
    return this.log ? Math.exp(at) : at;
  }

  ticks(most) {
    return this.log ? this.logTicks(most) : this.evenTicks(most);
  }

  evenTicks(most) {
    const unit = this.unit === "bytes" ? 1024 ** Math.floor(Math.log(this.high) / Math.log(1024)) : 1;
    const rough = (this.high - this.low) / unit / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power * unit;
    if (this.unit === "count") step = Math.max(step, 1);
    const made = [];
    for (let at = Math.ceil(this.low / step - 1e-9) * step; at <= this.high + step * 1e-9; at += step) {
      made.push(Math.abs(at) < step * 1e-9 ? 0 : at);
    }
    return made;
  }

  logTicks(most, factors = [1, 2, 5]) {
    const made = [];
    const last = Math.ceil(Math.log10(this.high));
    for (let power = Math.floor(Math.log10(this.low)); power <= last; power += 1) {
      for (const factor of factors) made.push(factor * 10 ** power);
    }
    const inside = made.filter((at) => at >= this.low * (1 - 1e-9) && at <= this.high * (1 + 1e-9));
    if (inside.length < 3 && factors.length === 3) return this.logTicks(most, [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]);
    const decades = inside.filter((at) => Math.abs(Math.log10(at) - Math.round(Math.log10(at))) < 1e-9);
    const kept = inside.length <= most || decades.length < 2 ? inside : decades;
    const every = Math.ceil(kept.length / most);
    return kept.filter((_, index) => index % every === 0);
  }
}

/* -- marks ------------------------------------------------------------------------------------------- */

const MARKS = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  (x, y, r) => `M${x - r} ${y + r}L${x} ${y - r}L${x + r} ${y + r}Z`,
  (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (x, y, r) => `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`,
];
const short = (value) => Math.round(value * 10) / 10;

/* -- the chart ---------------------------------------------------------------------------------------- */

let charts = 0;

class Chart {
  /* `options`: title; x and y: {label, unit, log, zero}; layers: a list of {look, name, colour, data, ...}
     with look "step", "line" or "area" (data [x, y]), "points" (data [x, y], mark 0 to 3, filled) or "bars"
     (data [line, start, end], hollow); tip(layer, index) gives the text of a hover, open(layer, index) is
     called for a click or Enter; a layer with `hover: false` is not hovered; moment: an x that is marked. */
  constructor(host, options) {
    this.host = host;
    this.options = options;
    this.zoom = null;
    this.at = null;
    charts += 1;
    this.id = `chart-${charts}`;
    this.build();
    this.width = 0;
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(host);
    this.resize();
  }

  build() {
    const { title, layers } = this.options;
    this.svg = shape("svg", { tabindex: "0", role: "img", "aria-label": `${title}. Arrow keys go from point to point.` });
    this.tip = element("div", { class: "tip", role: "status", hidden: true });
    const caption = element("figcaption", {}, element("strong", {}, title));
    for (const layer of layers) {
      if (layer.name && layer.data.length) caption.append(this.key(layer));
    }
    const zoom = element("span", { class: "zoom" });
    for (const [sign, words, factor] of [["+", "Zoom in", 0.5], ["−", "Zoom out", 2], ["All", "Show all", 0]]) {
      const button = element("button", { type: "button", "aria-label": `${words}: ${title}` }, sign);
      button.addEventListener("click", () => this.zoomBy(factor));
      zoom.append(button);
    }
    caption.append(zoom);
    this.figure = element("figure", { class: "chart" }, caption, this.svg, this.tip);
    this.host.replaceChildren(this.figure);
    this.listen();
  }

  key(layer) {
    const icon = shape("svg", { width: 18, height: 10, "aria-hidden": "true" });
    const path = shape("path", this.paint(layer));
    if (layer.look === "points") path.setAttribute("d", MARKS[layer.mark || 0](9, 5, 3.5));
    else path.setAttribute("d", layer.look === "bars" || layer.look === "area" ? "M1 1h16v8h-16Z" : "M0 5h18");
    icon.append(path);
    return element("span", { class: "key" }, icon, layer.name);
  }

  paint(layer) {
    const colour = layer.colour;
    if (layer.look === "area") return { fill: colour, "fill-opacity": 0.22, stroke: "none" };
    if (layer.look === "bars") {
      return layer.hollow ? { fill: "none", stroke: colour, "stroke-width": 1 } : { fill: colour, stroke: "none" };
    }
    if (layer.look === "points") {
      return { fill: layer.filled ? colour : "none", stroke: colour, "stroke-width": 1.2 };
    }
    return { fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-dasharray": layer.dash || "none" };
  }

  resize() {
    const width = Math.round(this.host.clientWidth);
    if (width && width !== this.width) {
      this.width = width;
      this.draw();
    }
  }

  ends(layer, index) {
    const row = layer.data[index];
    return layer.look === "bars" ? [row[1], row[2], row[0]] : [row[0], row[0], row[1]];
  }

  whole() {
    let [low, high] = [Infinity, -Infinity];
    for (const layer of this.options.layers) {
      for (let index = 0; index < layer.data.length; index += 1) {
        const [start, end] = this.ends(layer, index);
        low = Math.min(low, start);
        high = Math.max(high, end);
      }
    }
    if (low > high) return [0, 1];
    if (this.options.x.zero) low = Math.min(low, 0);
    if (this.options.x.log && low > 0) return [low / 1.15, high * 1.15];
    const room = (high - low || Math.abs(high) || 1) * 0.02;
    return [this.options.x.zero && low === 0 ? 0 : low - room, high + room];
  }

  heights([from, to]) {
    const y = this.options.y;
    if (y.range) return y.range;
    let [low, high] = [Infinity, -Infinity];
    for (const layer of this.options.layers) {
      for (let index = 0; index < layer.data.length; index += 1) {
        const [start, end, value] = this.ends(layer, index);
        if (end < from || start > to) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) return [0, 1];
    if (y.log && low > 0) return [low / 1.3, high * 1.3];
    return [y.zero ? Math.min(0, low) : low - (high - low) * 0.05, high + (high - low || Math.abs(high) || 1) * 0.07];
  }

  draw() {
    const height = this.options.height || 300;
    const range = this.zoom || this.whole();
    const [low, high] = this.heights(range);
    const { x, y } = this.options;
    this.x = new Axis(range[0], range[1], MARGIN.left, this.width - MARGIN.right, x.log, x.unit);
    this.y = y.down
      ? new Axis(low, high, MARGIN.top, height - MARGIN.bottom, false, y.unit)
      : new Axis(low, high, height - MARGIN.bottom, MARGIN.top, y.log, y.unit);
    this.box = { left: MARGIN.left, right: this.width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.style.height = `${height}px`;
    const clip = shape("clipPath", { id: this.id });
    const { left, right, top, bottom } = this.box;
    clip.append(shape("rect", { x: left, y: top, width: Math.max(right - left, 1), height: bottom - top }));
    const marks = shape("g", { "clip-path": `url(#${this.id})` });
    for (const layer of this.options.layers) marks.append(this.drawn(layer));
    this.moments = shape("g");
    this.over = shape("g");
    marks.append(this.moments);
    this.svg.replaceChildren(clip, this.grid(), marks, this.over);
    this.showMoment(this.options.moment);
    this.spots = this.places();
    this.hover(this.at);
  }

  grid() {
    const made = shape("g");
    const { left, right, top, bottom } = this.box;
    for (const at of this.x.ticks(Math.max(Math.floor((right - left) / 85), 2))) {
      const place = short(this.x.place(at));
      made.append(shape("line", { class: "grid", x1: place, x2: place, y1: top, y2: bottom }));
      made.append(shape("text", { x: place, y: bottom + 16, "text-anchor": "middle" }, pretty(at, this.x.unit)));
    }
    for (const at of this.y.ticks(Math.max(Math.floor((bottom - top) / 38), 2))) {
      const place = short(this.y.place(at));
      made.append(shape("line", { class: "grid", x1: left, x2: right, y1: place, y2: place }));
      made.append(shape("text", { x: left - 6, y: place + 4, "text-anchor": "end" }, pretty(at, this.y.unit)));
    }
    made.append(shape("path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` }));
    made.append(shape("text", { x: (left + right) / 2, y: bottom + 33, "text-anchor": "middle" }, this.options.x.label));
    const middle = (top + bottom) / 2;
    const turned = { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` };
    made.append(shape("text", turned, this.options.y.label));
    return made;
  }

  drawn(layer) {
    const parts = [];
    const rows = layer.data;
    if (layer.look === "bars") {
      const thick = Math.max(Math.abs(this.y.scale) * (Math.abs(this.y.scale) > 5 ? 0.8 : 1), 0.5);
      for (const [line, start, end] of rows) {
        const from = this.x.place(start);
        const wide = Math.max(this.x.place(end) - from, 0.4);
        parts.push(`M${short(from)} ${short(this.y.place(line) - thick / 2)}h${short(wide)}v${short(thick)}h${short(-wide)}Z`);
      }
    } else if (layer.look === "points") {
      const mark = MARKS[layer.mark || 0];
      for (const [x, y] of rows) parts.push(mark(short(this.x.place(x)), short(this.y.place(y)), layer.size || 3));
    } else {
      rows.forEach(([x, y], index) => {
        const [across, up] = [short(this.x.place(x)), short(this.y.place(y))];
        if (!index) parts.push(`M${across} ${up}`);
        else parts.push(layer.look === "line" ? `L${across} ${up}` : `H${across}V${up}`);
      });
      if (layer.look === "area" && rows.length) {
        const floor = short(this.y.place(Math.max(this.y.low, 0)));
        parts.push(`V${floor}H${short(this.x.place(rows[0][0]))}Z`);
      }
    }
    return shape("path", { ...this.paint(layer), d: parts.join("") });
  }

  /* Everything that can be hovered and is in view, from left to right. */
  places() {
    const made = [];
    this.options.layers.forEach((layer, place) => {
      if (layer.hover === false || !this.options.tip) return;
      for (let index = 0; index < layer.data.length; index += 1) {
        const [start, end, value] = this.ends(layer, index);
        const [from, to] = [this.x.place(start), this.x.place(end)];
        if (to < this.box.left - 1 || from > this.box.right + 1) continue;
        made.push({ layer: place, index, from, to, up: this.y.place(value) });
      }
    });
    return made.sort((a, b) => a.from - b.from || a.up - b.up);
  }

  nearest(across, up) {
    let [best, least] = [null, FARTHEST_HOVER];
    for (const spot of this.spots) {
      const side = across < spot.from ? spot.from - across : Math.max(across - spot.to, 0);
      const far = Math.hypot(side, spot.up - up);
      if (far < least) [best, least] = [spot, far];
    }
    return best;
  }

  hover(spot) {
    if (spot) spot = this.spots.find((one) => one.layer === spot.layer && one.index === spot.index) || null;
    this.at = spot;
    this.over.replaceChildren();
    this.tip.hidden = !spot;
    if (!spot) return;
    const across = Math.min(Math.max((spot.from + Math.min(spot.to, this.box.right)) / 2, this.box.left), this.box.right);
    this.over.append(shape("circle", { class: "here", cx: short(across), cy: short(spot.up), r: 6 }));
    this.tip.textContent = this.options.tip(spot.layer, spot.index);
    const top = this.svg.getBoundingClientRect().top - this.figure.getBoundingClientRect().top + spot.up;
    this.tip.style.left = "0px";
    const room = this.width - this.tip.offsetWidth - 4;
    this.tip.style.left = `${Math.max(Math.min(across + 12, room), 0)}px`;
    this.tip.style.top = `${Math.max(top - this.tip.offsetHeight - 12, 0)}px`;
  }

  showMoment(x) {
    this.options.moment = x;
    this.moments.replaceChildren();
    if (x === undefined || x === null) return;
    const place = short(this.x.place(x));
    this.moments.append(shape("line", { class: "moment", x1: place, x2: place, y1: this.box.top, y2: this.box.bottom }));
  }

  zoomBy(factor) {
    if (!factor) {
      this.zoom = null;
    } else {
      const middle = this.at ? (this.at.from + this.at.to) / 2 : (this.box.left + this.box.right) / 2;
      const half = ((this.box.right - this.box.left) / 2) * factor;
      const [low, high] = this.whole();
      const range = [Math.max(this.x.value(middle - half), low), Math.min(this.x.value(middle + half), high)];
      this.zoom = range[0] <= low && range[1] >= high ? null : range;
    }
    this.draw();
  }

  move(steps) {
    if (!this.spots.length) return;
    const now = this.at ? this.spots.findIndex((one) => one.layer === this.at.layer && one.index === this.at.index) : -1;
    const next = now < 0 ? (steps > 0 ? 0 : this.spots.length - 1) : now + steps;
    this.hover(this.spots[Math.min(Math.max(next, 0), this.spots.length - 1)]);
  }

  listen() {
    let from = null;
    const place = (event) => {
      const box = this.svg.getBoundingClientRect();
      return [((event.clientX - box.left) * this.width) / box.width, event.clientY - box.top];
    };
    const select = (to) => {
      const [left, right] = [Math.max(Math.min(from, to), this.box.left), Math.min(Math.max(from, to), this.box.right)];
      return right - left > 8 ? [left, right] : null;
    };
    this.svg.addEventListener("pointerdown", (event) => {
      [from] = place(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      const [across, up] = place(event);
      const range = from === null ? null : select(across);
      if (!range) {
        this.hover(this.nearest(across, up));
        return;
      }
      this.hover(null);
      const { top, bottom } = this.box;
      const drawn = { class: "selection", x: range[0], y: top, width: range[1] - range[0], height: bottom - top };
      this.over.append(shape("rect", drawn));
    });
    this.svg.addEventListener("pointerup", (event) => {
      const [across, up] = place(event);
      const range = from === null ? null : select(across);
      from = null;
      if (range) {
        this.zoom = range.map((at) => this.x.value(at));
        this.at = null;
        this.draw();
      } else {
        this.hover(this.nearest(across, up));
        this.open();
      }
    });
    this.svg.addEventListener("pointercancel", () => { from = null; this.hover(null); });
    this.svg.addEventListener("pointerleave", () => { if (from === null) this.hover(null); });
    this.svg.addEventListener("blur", () => this.hover(null));
    this.svg.addEventListener("dblclick", () => this.zoomBy(0));
    this.svg.addEventListener("keydown", (event) => this.press(event));
  }

  open() {
    if (this.at && this.options.open) this.options.open(this.at.layer, this.at.index);
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const many = Math.max(Math.round(this.spots.length / 20), 1);
    const actions = {
      ArrowRight: () => this.move(1), ArrowLeft: () => this.move(-1),
      PageUp: () => this.move(many), PageDown: () => this.move(-many),
      Home: () => this.move(-Infinity), End: () => this.move(Infinity),
      "+": () => this.zoomBy(0.5), "=": () => this.zoomBy(0.5), "-": () => this.zoomBy(2), "−": () => this.zoomBy(2),
      0: () => this.zoomBy(0), Escape: () => this.hover(null), Enter: () => this.open(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}
