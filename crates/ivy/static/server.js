// Talks to the server that this page came from, with the visitor's key where one is asked for.

const KEY = "ivy-api-key";
let key = stored();

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** Uses this key from now on, in this tab. */
export function useKey(given) {
  key = given;
  try {
    sessionStorage.setItem(KEY, given);
  } catch {
    // Storage is switched off: the key lasts until the page is loaded again.
  }
}

export const hasKey = () => key !== "";

/** What the server answered instead of a result; `status` 0 = no answer at all. */
export class ServerError extends Error {
  constructor(status, message, headers = new Headers()) {
    super(message);
    this.status = status;
    this.requestId = headers.get("x-request-id") ?? "";
    this.retryAfter = headers.get("retry-after") ?? "";
  }

  /** For the visitor: what happened, and what may help. */
  describe() {
    const name = this.status === 0 ? "No answer" : `Error ${this.status}`;
    const lines = [`${name}: ${this.message}`];
    if (this.retryAfter) lines.push(`Try again in ${this.retryAfter} s.`);
    if (this.requestId) lines.push(`Request ${this.requestId}`);
    return lines.join("\n");
  }
}

export const get = (path, signal) => ask(path, { signal, cache: "no-store" });

export function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return ask(path, { method: "POST", body: JSON.stringify(body), headers, signal });
}

/** `{ body, headers, ms }`, or throws a ServerError, or AbortError when `signal` ended it. */
async function ask(path, options) {
  const headers = { accept: "application/json", ...options.headers };
  if (key) headers.authorization = `Bearer ${encodedKey()}`;
  const began = performance.now();
  let response;
  let text;
  try {
    response = await fetch(path, { ...options, headers });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
    throw new ServerError(0, `the server cannot be reached (${error.message})`);
  }
  const ms = performance.now() - began;
  const body = parsed(text);
  if (!response.ok) {
    const message = messageOf(body) || response.statusText || "no reason was given";
    throw new ServerError(response.status, message, response.headers);
  }
  if (body === undefined) {
    throw new ServerError(response.status, "the answer is not JSON", response.headers);
  }
  return { body, headers: response.headers, ms };
}

// Headers hold bytes: a key with other letters would make fetch throw.
const encodedKey = () => key.replace(/[^\x21-\x7e]/g, "?");

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The message, whichever dialect's error it is. */
function messageOf(body) {
  if (body === null || typeof body !== "object") return "";
  const candidates = [body.message, body.error?.message, body.error, body.detail];
  return candidates.find((candidate) => typeof candidate === "string") ?? "";
}

/** Milliseconds by name, from `Server-Timing`. */
export function serverTimes(headers) {
  const times = {};
  for (const entry of (headers.get("server-timing") ?? "").split(",")) {
    const [name, ...parameters] = entry.trim().split(";");
    const given = parameters.map((text) => text.trim()).find((text) => text.startsWith("dur="));
    if (name && given) times[name] = Number(given.slice(4));
  }
  return times;
}
