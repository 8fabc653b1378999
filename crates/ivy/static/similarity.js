// The similarity playground of embedding models: texts become a table of cosines.

import { byId, counted, duration, element } from "./dom.js";
import { InputError, asCurl, runs, times } from "./run.js";
import { hasKey, post } from "./server.js";

/** More would be a table that nobody reads. */
const MAX_TEXTS = 40;

/** Connects the form; `model()` is the name that requests carry. */
export function startSimilarity(model) {
  const results = byId("similarity-results");
  const count = () => {
    byId("text-count").textContent = `(${texts().length})`;
  };
  byId("texts").addEventListener("input", count);
  count();
  runs({
    form: byId("similarity-form"),
    stop: byId("similarity-stop"),
    error: byId("similarity-error"),
    results,
    work: async (signal) => {
      const body = request(model());
      const answer = await post("v1/embeddings", body, signal);
      show(results, body, answer);
    },
  });
}

function texts() {
  const lines = byId("texts").value.split("\n");
  return lines.map((line) => line.trim()).filter((line) => line !== "");
}

function request(model) {
  const input = texts();
  if (input.length < 2) throw new InputError(`Texts: two are needed to compare, there is ${input.length || "none"}.`);
  if (input.length > MAX_TEXTS) {
    throw new InputError(`Texts: ${input.length} are more than this table holds, ${MAX_TEXTS}.`);
  }
  return model ? { input, model } : { input };
}

function show(place, body, answer) {
  const { data, usage } = answer.body;
  const vectors = [...data].sort((a, b) => a.index - b.index).map((entry) => entry.embedding);
  const summary = element(
    "p",
    { class: "summary" },
    element("b", {}, duration(answer.ms)),
    element("span", {}, counted(vectors.length, "text")),
    element("span", {}, counted(vectors[0].length, "dimension")),
    element("span", {}, counted(usage?.total_tokens ?? 0, "token")),
  );
  const table = element("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Cosine similarities" }, matrix(body.input, vectors));
  place.replaceChildren(summary, ...times(answer), table, asCurl("v1/embeddings", body, hasKey()));
}

function matrix(input, vectors) {
  const lengths = vectors.map((vector) => Math.sqrt(dot(vector, vector)));
  const cosine = (a, b) => {
    const length = lengths[a] * lengths[b];
    return length > 0 ? dot(vectors[a], vectors[b]) / length : 0;
  };
  const columns = input.map((_, index) => element("th", { scope: "col" }, String(index + 1)));
  const head = element("tr", {}, element("td"), columns);
  const rows = input.map((text, row) => {
    const name = element("span", { dir: "auto", title: text }, `${row + 1}. ${text}`);
    const cells = input.map((_, column) => cell(cosine(row, column)));
    return element("tr", {}, element("th", { scope: "row" }, name), cells);
  });
  return element("table", {}, element("thead", {}, head), element("tbody", {}, rows));
}

function cell(value) {
  const made = element("td", {}, value.toFixed(2));
  // The text on it must stay readable, so the colour never covers it fully.
  const share = Math.round(Math.min(1, Math.abs(value)) ** 3 * 45);
  const colour = value < 0 ? "var(--second)" : "var(--accent)";
  made.style.background = `color-mix(in srgb, ${colour} ${share}%, transparent)`;
  return made;
}

function dot(a, b) {
  let sum = 0;
  for (let index = 0; index < a.length; index += 1) sum += a[index] * b[index];
  return sum;
}
