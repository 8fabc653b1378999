// The cards: what is served, and where the work goes.

import { counted, element, short } from "./dom.js";

const TASKS = { embed: "embeds", score: "scores", classify: "classifies", unknown: "unknown" };
const STATES = { ready: "good", connecting: "waiting", draining: "waiting", ejected: "bad", refused: "bad" };

/** One card for each model. */
export function showModels(place, models) {
  if (models.length === 0) {
    place.replaceChildren(element("p", { class: "muted" }, "Nothing is served yet."));
    return;
  }
  place.replaceChildren(...models.map(card));
}

function card(model) {
  const vectors = model.task === "embed"
    ? [
        ["Dimensions", model.dimensions],
        ["May be cut to", model.matryoshka_dimensions?.join(", ")],
        ["Pooling", model.pooling],
        ["Unit length", model.normalized === undefined ? undefined : yes(model.normalized)],
        ["Similarity", model.similarity],
        ["Outputs", model.outputs?.join(", ")],
      ]
    : [
        ["Labels", model.labels?.join(", ")],
        ["Positive label", model.positive_label],
        ["Activation", model.score_activation],
        ["Pooling", model.pooling],
      ];
  const facts = [
    ["Task", TASKS[model.task] ?? model.task],
    ["Architecture", model.architecture],
    ["Runs on", [model.device, model.dtype].filter(Boolean).join(", ")],
    // On a GPU each replica says how many it holds.
    ["CUDA graphs", model.device === "cpu" ? "none on a CPU" : undefined],
    ...vectors,
    ["Sequence", limit(model.max_sequence_tokens, "token")],
    ["Request", limit(model.max_items_per_request, "item")],
    ["Step", limit(model.max_batch_tokens, "token")],
    ["Queue", limit(model.max_queued_tokens, "token")],
    ["Vocabulary", limit(model.vocab_size, "token")],
    ["Prompts", model.prompts?.join(", ")],
    ["Instruction", model.default_instruction],
    ["Server", model.server_version],
    ["Fingerprint", model.fingerprint && element("code", {}, model.fingerprint)],
  ];
  const rows = facts
    .filter(([, value]) => value)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value.cloneNode ? value : String(value))]);
  return element("article", {}, element("h3", {}, model.name || "(no name)"), element("dl", { class: "facts" }, rows));
}

const yes = (value) => (value ? "yes" : "no");
const limit = (count, noun) => (count ? `up to ${counted(count, noun)}` : undefined);

/** One entry for each replica. */
export function showReplicas(place, replicas) {
  if (replicas.length === 0) {
    place.replaceChildren(element("li", { class: "muted" }, "None is known."));
    return;
  }
  const byAddress = [...replicas].sort((a, b) => a.address.localeCompare(b.address));
  place.replaceChildren(...byAddress.map(replicaEntry));
}

function graphs({ graphs, failed_captures, eager_steps, replayed_steps, bytes }) {
  const steps = eager_steps + replayed_steps;
  const parts = [
    steps > 0 ? `${((100 * replayed_steps) / steps).toFixed(0)} % of steps replayed` : null,
    failed_captures > 0 ? `${counted(failed_captures, "capture")} failed` : null,
  ];
  const held = `${counted(graphs, "CUDA graph")} in ${(bytes / 2 ** 20).toFixed(0)} MiB`;
  return [held, ...parts.filter(Boolean)].join(", ");
}

function replicaEntry(replica) {
  const name = replica.address === "local" ? "this process" : replica.address;
  const state = element("span", { class: "pill", "data-state": STATES[replica.state] ?? "waiting" }, replica.state);
  const most = replica.max_queued_tokens;
  const share = most > 0 ? Math.min(1, replica.outstanding_tokens / most) : 0;
  const fill = element("span");
  fill.style.inlineSize = `${(share * 100).toFixed(1)}%`;
  const gauge = most > 0
    ? element(
        "div",
        {
          class: "gauge",
          role: "meter",
          "aria-label": `Tokens in flight at ${name}`,
          "aria-valuemin": 0,
          "aria-valuemax": most,
          "aria-valuenow": Math.min(most, replica.outstanding_tokens),
        },
        fill,
      )
    : null;
  const parts = [
    `${short(replica.outstanding_tokens)}${most > 0 ? ` of ${short(most)}` : ""} tokens in flight`,
    `${short(replica.queued_tokens)} waiting`,
    `${short(replica.running_tokens)} running in ${counted(replica.steps_in_flight, "step")}`,
    replica.tokens_per_second > 0 ? `${short(replica.tokens_per_second)} tokens/s` : null,
    replica.graphs && graphs(replica.graphs),
  ];
  return element(
    "li",
    {},
    element("div", { class: "head" }, element("h3", {}, name), state),
    replica.model ? element("p", { class: "muted" }, replica.model) : null,
    gauge,
    element("p", { class: "muted" }, parts.filter(Boolean).join(" · ")),
  );
}
