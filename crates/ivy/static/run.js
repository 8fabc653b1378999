// What the two playgrounds share: a form that runs one request at a time, and where time went.

import { duration, element, say } from "./dom.js";
import { ServerError, serverTimes } from "./server.js";

/**
 * Makes a form run `work(signal)`, which shows its own results. Ctrl+Enter runs it from any field;
 * running it again, or the stop button, ends the request before.
 */
export function runs({ form, stop, error, results, work }) {
  const submit = form.querySelector("[type=submit]");
  let running = null;
  const run = async (event) => {
    event?.preventDefault();
    running?.abort();
    const mine = new AbortController();
    running = mine;
    say(error, "");
    stop.hidden = false;
    results.setAttribute("aria-busy", "true");
    try {
      await work(mine.signal);
    } catch (problem) {
      if (running !== mine) return;
      results.replaceChildren();
      say(error, explained(problem));
    } finally {
      if (running === mine) {
        running = null;
        stop.hidden = true;
        results.removeAttribute("aria-busy");
      }
    }
  };
  form.addEventListener("submit", run);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !submit.disabled) run(event);
  });
  stop.addEventListener("click", () => running?.abort());
}

/** Wrong input, as the visitor can mend it; nothing was sent. */
export class InputError extends Error {}

function explained(problem) {
  if (problem.name === "AbortError") return "Stopped.";
  if (problem instanceof ServerError) return problem.describe();
  if (problem instanceof InputError) return problem.message;
  return `This page failed: ${problem.message}`;
}

/** Where the time of an answer went, as a bar and as a list. */
export function times({ headers, ms }) {
  const server = serverTimes(headers);
  const known = ["tokenize", "queue", "compute"].map((name) => server[name] ?? 0);
  const total = server.total ?? 0;
  const rest = Math.max(0, total - known.reduce((sum, part) => sum + part, 0));
  const parts = [
    ["tokenize", known[0], "third"],
    ["queue", known[1], "second"],
    ["compute", known[2], "first"],
    ["gateway", rest, "rest"],
    ["network and browser", Math.max(0, ms - total), "network"],
  ];
  const bar = element("div", { class: "times", "aria-hidden": "true" });
  for (const [name, part, ink] of parts) {
    if (part <= 0) continue;
    const piece = element("span", { class: `ink-${ink}`, title: `${name} ${duration(part)}` });
    piece.style.flexGrow = String(part);
    bar.append(piece);
  }
  const list = parts.map(([name, part, ink]) =>
    element("li", { class: `ink-${ink}` }, `${name} ${duration(part)}`),
  );
  return [bar, element("ul", { class: "time-list", "aria-label": "Where the time went" }, list)];
}

/** The request as a command; a key is left for the reader to fill in. */
export function asCurl(path, body, withKey) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = [`curl ${quoted(new URL(path, document.baseURI).href)}`, "-H 'content-type: application/json'"];
  if (withKey) lines.push('-H "authorization: Bearer $IVY_API_KEY"');
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  const command = lines.join(" \\\n  ");
  const copy = element("button", { type: "button", class: "quiet" }, "Copy");
  copy.hidden = !navigator.clipboard;
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it by hand";
    }
  });
  return element("details", { class: "curl" }, element("summary", {}, "As a command"), element("pre", {}, command), copy);
}
