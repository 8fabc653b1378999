// Elements. Text goes in as text, never as HTML: documents hold whatever people paste.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text, null and undefined nothing. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return made;
}

/** Shows a message in a place that is hidden while there is none. */
export function say(place, message) {
  if (place.textContent !== message) place.textContent = message;
  place.hidden = message === "";
}

const LETTERS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** A number in three digits: 0.12, 4.5, 812, 12.3k. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  for (const [size, letter] of LETTERS) {
    if (Math.abs(value) >= 0.9995 * size) return digits(value / size) + letter;
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Milliseconds as people read them. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 60_000) return `${digits(ms / 60_000)} min`;
  if (ms >= 1_000) return `${digits(ms / 1_000)} s`;
  return `${digits(ms)} ms`;
}

/** `1 document`, `2 documents`. */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
