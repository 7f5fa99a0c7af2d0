// What llama.cpp says: greedy_tokens MODEL N ID... prints the N ids it continues with. Built by llama_cpp_test.py against a llama.cpp beside the project.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  llama_log_set([](ggml_log_level level, const char* text, void*) { if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr); }, nullptr);
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (!model) return 1;
  std::vector<llama_token> feed;
  for (int i = 3; i < argc; ++i) feed.push_back(std::atoi(argv[i]));
  const int n_new = std::atoi(argv[2]);
  // The cache in f32 and attention in its plain form: nothing between the two but the order of additions.
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = 2;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (!context) return 1;
  const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int k = 0; k < n_new; ++k) {
    if (llama_decode(context, llama_batch_get_one(feed.data(), static_cast<int32_t>(feed.size()))) != 0) return 1;
    const float* logits = llama_get_logits_ith(context, -1);
    llama_token best = 0;
    for (llama_token t = 1; t < n_vocab; ++t)
      if (logits[t] > logits[best]) best = t;
    std::printf("%d ", best);
    feed = {best};
  }
  std::printf("\n");
}
