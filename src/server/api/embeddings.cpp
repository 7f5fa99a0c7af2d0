// /v1/embeddings: the final hidden state of the last token of every input, at unit length.
#include <cmath>
#include <cstring>

#include "server/api/handlers.h"
#include "server/api/job_fields.h"
#include "server/api/shapes.h"

namespace ridge {
namespace {

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? uint8_t(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kBase64[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::vector<float> at_unit_length(std::vector<float> x) {
  double sum = 0;
  for (const float v : x) sum += double(v) * v;
  if (sum > 0)
    for (float& v : x) v = float(v / std::sqrt(sum));
  return x;
}

class EmbeddingWriter : public AnswerWriter {
 public:
  EmbeddingWriter(ServicePtr service, bool as_base64) : service_(std::move(service)), base64_(as_base64) {}
  std::string whole(const std::vector<Answer>& answers, const Usage& usage) override {
    Json data = Json::array();
    for (const Answer& answer : answers) {
      const std::vector<float> vector = at_unit_length(answer.embedding);
      std::string bytes(vector.size() * sizeof(float), '\0');
      std::memcpy(bytes.data(), vector.data(), bytes.size());
      data.push_back({{"object", "embedding"}, {"index", answer.index}, {"embedding", base64_ ? Json(base64(bytes)) : Json(vector)}});
    }
    return dumped({{"object", "list"}, {"data", std::move(data)}, {"model", service_->name()}, {"usage", {{"prompt_tokens", usage.n_prompt}, {"total_tokens", usage.n_prompt}}}});
  }
  std::string begin(const Usage&) override { return {}; }
  std::string piece(const Answer&, const AnswerPiece&, const Usage&) override { return {}; }
  std::string finished(const Answer&, const Usage&) override { return {}; }
  std::string end(const std::vector<Answer>&, const Usage&) override { return {}; }
  std::string failed(const std::string&) override { return {}; }

 private:
  ServicePtr service_;
  bool base64_;
};

}  // namespace

void handle_embeddings(const ServicePtr& service, const HttpRequest& request, const ReplyPtr& reply) {
  const Json body = body_of(request);
  const Fields fields(body);
  CompletionJob job;
  job.adapter = check_model(fields, *service);
  job.params.max_tokens = 0;
  job.prompts = read_prompts(fields, "input", *service);
  job.user = fields.text("user").value_or("");
  const bool as_base64 = fields.one_of("encoding_format", {"float", "base64"}).value_or("float") == "base64";
  const int d_model = service->facts.model().d_model;
  if (const auto dimensions = fields.integer("dimensions", 1, 1 << 20); dimensions && *dimensions != d_model)
    fields.refuse("dimensions", fmt::format("this model's embeddings have {}, and cutting them is not meant", d_model));
  std::vector<Prepared> prompts = prepare_completions(*service, job);
  for (Prepared& prompt : prompts) prompt.request.wants_embedding = true;
  answer_request(service, reply, std::move(prompts), job, std::make_unique<EmbeddingWriter>(named_for(service, job), as_base64), openai_error);
}

}  // namespace ridge
