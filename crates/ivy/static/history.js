// Turns looks at /status into rates and quantiles. The server's counts only grow; what happened
// between two looks is their difference, over the server's own clock.

/** Looks that a quantile covers: with one alone, few requests would make it jump. */
const LATENCY_LOOKS = 5;
/** Longer ago is forgotten. */
const KEPT_SECONDS = 1800;
/** A look that came this late belongs to a page that slept: the line has a gap there. */
const GAP_SECONDS = 10;

export class History {
  /** `{ at, requests, errors, tokens, outstanding, queued, p50, p99 }`; null = not known. */
  samples = [];
  #looks = [];

  /** Adds a look, `at` in seconds of the page's clock. */
  add(at, status) {
    const before = this.#looks.at(-1);
    if (before && restarted(before.status, status)) this.#looks = [];
    const last = this.#looks.at(-1);
    if (this.samples.length > 0 && (!last || at - last.at > GAP_SECONDS)) {
      this.samples.push({ at: last ? last.at + 0.001 : at - 0.001 });
      this.#looks = [];
    }
    const first = this.#looks.at(-LATENCY_LOOKS);
    const previous = this.#looks.at(-1);
    this.samples.push({
      at,
      ...rates(previous?.status, status),
      ...inFlight(status),
      ...quantiles((first ?? this.#looks[0])?.status, status),
    });
    this.#looks.push({ at, status });
    if (this.#looks.length > LATENCY_LOOKS) this.#looks.shift();
    const oldest = at - KEPT_SECONDS;
    while (this.samples[0].at < oldest) this.samples.shift();
  }
}

const restarted = (before, now) => now.uptime_seconds < before.uptime_seconds;

function rates(before, now) {
  if (!before) return { requests: null, errors: null, tokens: null };
  const seconds = now.uptime_seconds - before.uptime_seconds;
  const rate = (...names) => {
    if (seconds <= 0) return null;
    const grown = names.map((name) => now.totals[name] - before.totals[name]);
    return grown.reduce((sum, more) => sum + more, 0) / seconds;
  };
  return {
    requests: rate("succeeded"),
    errors: rate("refused", "failed", "abandoned"),
    tokens: rate("tokens"),
  };
}

function inFlight(status) {
  const sum = (field) => status.replicas.reduce((total, replica) => total + replica[field], 0);
  return { outstanding: sum("outstanding_tokens"), queued: sum("queued_tokens") };
}

function quantiles(before, now) {
  const earlier = new Map(before?.latency.map((one) => [one.up_to_ms, one.requests]));
  const classes = now.latency
    .map((one) => [one.up_to_ms, one.requests - (earlier.get(one.up_to_ms) ?? 0)])
    .filter(([, requests]) => requests > 0)
    .sort(([a], [b]) => a - b);
  if (!before) return { p50: null, p99: null };
  return { p50: quantile(classes, 0.5), p99: quantile(classes, 0.99) };
}

/** Width of one class, as the server cuts them. */
const CLASS_RATIO = 2 ** (1 / 8);

/** Milliseconds below which `share` of the requests ended; null without requests. */
export function quantile(classes, share) {
  const total = classes.reduce((sum, [, requests]) => sum + requests, 0);
  if (total === 0) return null;
  let wanted = share * total;
  for (const [upTo, requests] of classes) {
    if (wanted <= requests) return upTo * CLASS_RATIO ** (wanted / requests - 1);
    wanted -= requests;
  }
  return classes.at(-1)[0];
}
