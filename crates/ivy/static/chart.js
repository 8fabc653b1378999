// One line chart: a few series over time, in SVG, with a cursor for mouse, finger and keys.

import { drawn, element } from "./dom.js";

const MARGIN = { top: 6, right: 8, bottom: 18, left: 42 };
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export class Chart {
  /**
   * `series`: `{ key, label, ink }`; `key` names a field of the samples, null in it is a gap.
   * `format` writes a value.
   */
  constructor({ title, series, format }) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.samples = [];
    this.until = 0;
    this.seconds = 120;
    this.cursor = null;
    this.when = element("span", { class: "when" });
    this.readout = element("p", { class: "readout" });
    this.svg = drawn("svg", { role: "img", tabindex: "0", focusable: "true" });
    const caption = element("figcaption", {}, element("span", {}, title), this.when);
    this.figure = element("figure", { class: "chart" }, caption, this.readout, this.svg);
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  /** Shows the last `seconds` before `until`. */
  show(samples, until, seconds) {
    Object.assign(this, { samples, until, seconds });
    this.draw();
  }

  draw() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (width < MARGIN.left + 20 || height < 30) return;
    const from = this.until - this.seconds;
    const seen = this.samples.filter((sample) => sample.at >= from && sample.at <= this.until);
    const top = ceiling(seen.flatMap((sample) => this.series.map(({ key }) => sample[key] ?? 0)));
    const left = MARGIN.left;
    const right = width - MARGIN.right;
    const bottom = height - MARGIN.bottom;
    this.x = (at) => left + ((at - from) / this.seconds) * (right - left);
    const y = (value) => bottom - (value / top) * (bottom - MARGIN.top);
    const lines = [0, top / 2, top].map((value) => [
      drawn("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, trimmed(this.format(value))),
    ]);
    const times = [
      drawn("text", { x: left, y: height - 4 }, ago(this.seconds)),
      drawn("text", { x: right, y: height - 4, "text-anchor": "end" }, "now"),
    ];
    const traces = this.series.map(({ key, ink }) =>
      drawn("path", { class: `trace ink-${ink}`, d: path(seen, key, this.x, y) }),
    );
    const marked = this.#marked(seen);
    const mark = marked && this.cursor !== null
      ? drawn("line", { class: "cursor", x1: this.x(marked.at), x2: this.x(marked.at), y1: MARGIN.top, y2: bottom })
      : null;
    this.svg.replaceChildren(...lines.flat(), ...times, ...traces, ...(mark ? [mark] : []));
    this.#tell(marked);
  }

  /** The sample under the cursor, or the last one. */
  #marked(seen) {
    const real = seen.filter((sample) => this.series.some(({ key }) => sample[key] !== undefined));
    if (this.cursor === null) return real.at(-1);
    const nearer = (best, sample) =>
      Math.abs(sample.at - this.cursor) < Math.abs(best.at - this.cursor) ? sample : best;
    return real.length > 0 ? real.reduce(nearer) : undefined;
  }

  #tell(sample) {
    const values = this.series.map(({ key, label, ink }) => ({
      label,
      ink,
      value: this.format(sample?.[key] ?? null),
    }));
    this.readout.replaceChildren(
      ...values.map(({ label, ink, value }) =>
        element("span", { class: `ink-${ink}` }, `${label} `, element("b", {}, value)),
      ),
    );
    this.when.textContent = sample && this.cursor !== null ? CLOCK.format(sample.at * 1000) : "";
    const told = values.map(({ label, value }) => `${label} ${value}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}, line chart. ${told}`);
  }

  #listen() {
    const point = (event) => {
      const { left, width } = this.svg.getBoundingClientRect();
      const share = (event.clientX - left - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
      this.#move(this.until - this.seconds * (1 - Math.min(1, Math.max(0, share))));
    };
    this.svg.addEventListener("pointermove", point);
    this.svg.addEventListener("pointerdown", point);
    this.svg.addEventListener("pointerleave", () => this.#move(null));
    this.svg.addEventListener("blur", () => this.#move(null));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined && event.key !== "Escape") return;
      event.preventDefault();
      const at = (this.cursor ?? this.until) + (step ?? 0) * (this.seconds / 60);
      this.#move(step === undefined ? null : Math.min(at, this.until));
    });
  }

  #move(cursor) {
    this.cursor = cursor;
    this.draw();
  }
}

/** A path that is broken where a value is missing; a lonely value is a dot. */
function path(samples, key, x, y) {
  let pen = false;
  const steps = [];
  for (const sample of samples) {
    const value = sample[key];
    if (value === null || value === undefined) {
      pen = false;
      continue;
    }
    const place = `${x(sample.at).toFixed(1)} ${y(value).toFixed(1)}`;
    // The round end of a line without length is the dot.
    steps.push(pen ? `L${place}` : `M${place}h0`);
    pen = true;
  }
  return steps.join("");
}

/** The next of 1, 2, 4, 5, 10 … at or above all values, so that half of it is a round number too. */
function ceiling(values) {
  const most = Math.max(0, ...values);
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 4, 5, 10].map((step) => step * power).find((step) => step >= most * 0.9999) ?? most;
}

/** Without zeros at the end of the fraction: `2.50k` is `2.5k`. */
function trimmed(text) {
  return text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
}

function ago(seconds) {
  return `−${seconds / 60} min`;
}
