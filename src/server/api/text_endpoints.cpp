// /tokenize, /detokenize and /apply-template, in the forms of vLLM (prompt, messages) and of llama-server (content).
#include "server/api/conversation.h"
#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/prepare.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

// What decides about the prompt of a chat, without the fields about its answer.
ChatJob conversation_of(const Fields& fields) {
  ChatJob job;
  job.messages = read_messages(fields);
  read_tools(job, fields);
  if (const auto variables = fields.object("chat_template_kwargs")) job.template_variables = variables->json();
  job.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  job.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(!job.continue_final_message);
  return job;
}

}  // namespace

void handle_tokenize(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json body = body_of(request);
  const Fields fields(body);
  check_model(fields, *service);
  const Tokenizer& tokenizer = service->tokenizer;
  std::vector<int32_t> ids;
  if (fields.has("messages")) {
    ids = tokenizer.encode(render_chat(*service, conversation_of(fields)), fields.boolean("add_special_tokens").value_or(false));
  } else if (const auto prompt = fields.text("prompt")) {
    ids = tokenizer.encode(*prompt, fields.boolean("add_special_tokens").value_or(true));
  } else if (const auto content = fields.text("content")) {
    ids = tokenizer.encode(*content, fields.boolean("add_special").value_or(false), fields.boolean("parse_special").value_or(true));
  } else {
    throw ApiError(400, "the body has no text: give prompt, content or messages", "prompt", "missing_required_parameter");
  }
  Json out = {{"count", ids.size()}, {"max_model_len", service->facts.max_context()}};
  if (fields.boolean("with_pieces").value_or(false)) {
    Json pieces = Json::array();
    for (const int32_t id : ids) pieces.push_back({{"id", id}, {"piece", token_text(tokenizer, id)}});
    out["tokens"] = std::move(pieces);
  } else {
    out["tokens"] = ids;
  }
  if (fields.boolean("return_token_strs").value_or(false)) {
    Json names = Json::array();
    for (const int32_t id : ids) names.push_back(tokenizer.token_name(id));
    out["token_strs"] = std::move(names);
  }
  send_json(reply, out);
}

void handle_detokenize(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json body = body_of(request);
  const Fields fields(body);
  check_model(fields, *service);
  fields.required("tokens", "a list of token ids");
  const std::string text = service->tokenizer.decode(fields.tokens("tokens", service->tokenizer.n_vocab()), fields.boolean("skip_special_tokens").value_or(false));
  send_json(reply, {{"prompt", text}, {"content", text}});
}

void handle_apply_template(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json body = body_of(request);
  const Fields fields(body);
  check_model(fields, *service);
  send_json(reply, {{"prompt", render_chat(*service, conversation_of(fields))}});
}

}  // namespace ridge
