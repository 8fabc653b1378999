// The rerank playground: a query and documents become ranked bars.

import { byId, counted, duration, element } from "./dom.js";
import { InputError, asCurl, runs, times } from "./run.js";
import { hasKey, post } from "./server.js";

/** Bars that are drawn at first; thousands would make a phone stutter. */
const SHOWN = 100;
/** Texts longer than this are folded. */
const FOLD_CHARACTERS = 280;
const FOLD_LINES = 3;

let last = null;

/** Connects the form; `model()` is the name that requests carry. */
export function startRerank(model) {
  const results = byId("rerank-results");
  const count = () => {
    let told = "";
    try {
      told = `(${documents().length.toLocaleString("en")})`;
    } catch {
      told = "(not a JSON list yet)";
    }
    byId("document-count").textContent = told;
  };
  byId("documents").addEventListener("input", count);
  byId("separator").addEventListener("change", count);
  byId("stretch").addEventListener("change", () => last && show(results, last));
  count();
  runs({
    form: byId("rerank-form"),
    stop: byId("rerank-stop"),
    error: byId("rerank-error"),
    results,
    work: async (signal) => {
      const body = request(model());
      last = { body, answer: await post("v2/rerank", body, signal) };
      show(results, last);
    },
  });
}

/** The texts of the field, by the separator that was chosen. */
function documents() {
  const text = byId("documents").value;
  const filled = (parts) => parts.map((part) => part.trim()).filter((part) => part !== "");
  switch (byId("separator").value) {
    case "blank":
      return filled(text.split(/\n[ \t]*\n/));
    case "json":
      return jsonList(text);
    default:
      return filled(text.split("\n"));
  }
}

function jsonList(text) {
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    throw new InputError(`Documents are not JSON: ${error.message}`);
  }
  if (!Array.isArray(list)) throw new InputError("Documents must be a JSON list of strings.");
  const wrong = list.findIndex((entry) => typeof entry !== "string");
  if (wrong >= 0) throw new InputError(`Documents: entry ${wrong} of the JSON list is not a string.`);
  return list;
}

function request(model) {
  const query = byId("query").value;
  if (query.trim() === "") throw new InputError("Query: write something to rank by.");
  const body = { query, documents: documents() };
  if (body.documents.length === 0) throw new InputError("Documents: write at least one.");
  if (model) body.model = model;
  const field = byId("top-n");
  if (field.validity.badInput || field.value !== "") {
    const topN = Number(field.value);
    if (!Number.isInteger(topN) || topN < 1) {
      throw new InputError("Number of results: must be a whole number, at least 1.");
    }
    body.top_n = topN;
  }
  return body;
}

function show(place, { body, answer }) {
  const { results, meta } = answer.body;
  const warnings = meta?.warnings ?? [];
  const tokens = meta?.tokens?.input_tokens ?? 0;
  const summary = element(
    "p",
    { class: "summary" },
    element("b", {}, duration(answer.ms)),
    element("span", {}, counted(body.documents.length, "document")),
    element("span", {}, counted(tokens, "token")),
    element("span", { class: "muted" }, `request ${answer.headers.get("x-request-id") ?? ""}`),
  );
  const bars = element("ol", { class: "ranked", "aria-label": "Documents, best first" });
  const width = barWidth(results);
  const entry = (result, rank) => rankedEntry(result, rank + 1, body.documents[result.index], width);
  bars.append(...results.slice(0, SHOWN).map(entry));
  const more = results.length > SHOWN ? moreButton(bars, results, entry) : null;
  place.replaceChildren(
    summary,
    ...times(answer),
    ...(warnings.length > 0 ? [warningList(warnings)] : []),
    bars,
    ...(more ? [more] : []),
    asCurl("v2/rerank", body, hasKey()),
  );
}

function moreButton(bars, results, entry) {
  const more = element("button", { type: "button", class: "quiet" }, `Show all ${results.length.toLocaleString("en")}`);
  more.addEventListener("click", () => {
    const rest = results.slice(SHOWN).map((result, index) => entry(result, SHOWN + index));
    bars.append(...rest);
    more.remove();
    rest[0].tabIndex = -1;
    rest[0].focus();
  });
  return more;
}

/** Warnings shown at once; a thousand cut documents say no more than ten. */
const WARNINGS = 10;

function warningList(warnings) {
  const items = warnings.slice(0, WARNINGS).map((warning) => element("li", {}, warning));
  const left = warnings.length - WARNINGS;
  if (left > 0) items.push(element("li", {}, `and ${left.toLocaleString("en")} more`));
  return element("ul", { class: "warnings", "aria-label": "Warnings" }, items);
}

/** Share of the bar for a score: of 1, or of the largest; or of the range between worst and best. */
function barWidth(results) {
  const scores = results.map((result) => result.relevance_score);
  const most = scores.reduce((most, score) => Math.max(most, Math.abs(score)), 1);
  if (!byId("stretch").checked) return (score) => Math.abs(score) / most;
  const [low, high] = [scores.at(-1), scores[0]];
  // The worst keeps a trace of a bar: it is a result too.
  return (score) => (high > low ? 0.02 + (0.98 * (score - low)) / (high - low) : 1);
}

function rankedEntry(result, rank, text, width) {
  const score = result.relevance_score;
  const fill = element("span", { class: score < 0 ? "negative" : "positive" });
  fill.style.inlineSize = `${(width(score) * 100).toFixed(2)}%`;
  const words = element("p", { class: "text", dir: "auto" }, text);
  const body = element("div", { class: "body" }, words);
  if (text.trim() === "") {
    words.textContent = "(empty)";
    words.classList.add("empty");
  } else if (text.length > FOLD_CHARACTERS || text.split("\n").length > FOLD_LINES) {
    body.append(folded(words, text));
  }
  return element(
    "li",
    {},
    element("span", { class: "rank" }, `${rank}.`),
    element("div", { class: "bar", "aria-hidden": "true" }, fill),
    element("span", { class: "score", title: `document ${result.index}, score ${score}` }, written(score)),
    body,
  );
}

function folded(words, text) {
  words.classList.add("clamped");
  const label = `Show all ${text.length.toLocaleString("en")} characters`;
  const button = element("button", { type: "button", class: "link", "aria-expanded": "false" }, label);
  button.addEventListener("click", () => {
    const open = !words.classList.toggle("clamped");
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Show less" : label;
  });
  return button;
}

/** Four digits behind the point; very small ones with their power of ten. */
function written(score) {
  return score !== 0 && Math.abs(score) < 0.0001 ? score.toExponential(1) : score.toFixed(4);
}
