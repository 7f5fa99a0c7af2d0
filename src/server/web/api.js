// The server as the page needs it: the models, what the engine does, and an answer as it streams.

export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    const body = await response.json();
    message = body.error?.message ?? body.message ?? message;
  } catch { /* not JSON: the status says it */ }
  return new ApiError(response.status, message);
}

export async function get_json(path, key, signal) {
  const response = await fetch(path, { headers: headers(key), signal, cache: "no-store" });
  if (!response.ok) throw await failure(response);
  return response.json();
}

// The data of server-sent events, whatever the pieces they arrive in.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (data.length) yield data.join("\n");
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  }
  if (data.length) yield data.join("\n");
}

// Adds the pieces of streamed tool calls to a message: a call's name comes first, its arguments in any pieces.
function add_tool_calls(message, pieces) {
  message.tool_calls ??= [];
  for (const piece of pieces) {
    const at = Number.isInteger(piece.index) && piece.index >= 0 && piece.index < 128 ? piece.index : message.tool_calls.length;
    const call = (message.tool_calls[at] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (piece.id) call.id = piece.id;
    if (piece.function?.name) call.function.name += piece.function.name;
    if (piece.function?.arguments) call.function.arguments += piece.function.arguments;
  }
}

// Sends `request` and grows `message` with the answer, calling `changed` after every piece. Figures of the answer end up in message.stats.
export async function stream_chat(request, key, message, changed, signal) {
  const started = performance.now();
  const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(key), body, signal });
  if (!response.ok) throw await failure(response);
  let first = 0, last = 0, n_pieces = 0;
  const figures = usage => {
    const n = usage?.completion_tokens ?? n_pieces;
    const seconds = (last - first) / 1000;
    message.stats = { first_ms: first ? first - started : null, n_tokens: n, tokens_per_s: n > 1 && seconds > 0 ? (n - 1) / seconds : null, n_prompt: usage?.prompt_tokens ?? null, n_cached: usage?.prompt_tokens_details?.cached_tokens ?? null };
  };
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.code ?? 500, chunk.error.message ?? "The server failed while answering.");
      const choice = chunk.choices?.[0];
      const delta = choice?.delta ?? {};
      const thought = delta.reasoning_content ?? delta.reasoning;
      if (delta.content || thought || delta.tool_calls) {
        last = performance.now();
        first ||= last;
        ++n_pieces;
      }
      if (thought) message.reasoning = (message.reasoning ?? "") + thought;
      if (delta.content) message.content += delta.content;
      if (delta.tool_calls) add_tool_calls(message, delta.tool_calls);
      if (choice?.finish_reason) message.finish = choice.finish_reason;
      if (chunk.usage) figures(chunk.usage);
      changed();
    }
  } finally {
    if (!message.stats) figures(null);
  }
}
