// The patterns are those of the models' own tokenizer.json files (in Oniguruma's spelling: regex_syntax.cpp), the names those that llama.cpp's converter writes.
#include "text/gguf_pre_tokenizers.h"

#include <array>
#include <utility>

namespace ridge {
namespace {

constexpr std::array<std::string_view, 1> kGpt2{{
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
}};
constexpr std::array<std::string_view, 1> kLlama3{{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kJais2{{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S))"
        R"(|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})",
}};
constexpr std::array<std::string_view, 1> kQwen2{{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kQwen35{{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S))"
        R"(|\s+)",
}};
constexpr std::array<std::string_view, 6> kDeepseekLlm{{
    R"([\r\n])",
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376})"
        R"(\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-)"
        R"(\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"
        R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
        R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
        R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126})"
        R"(\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B})"
        R"(\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-)"
        R"(\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-)"
        R"(\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N}+)",
}};
constexpr std::array<std::string_view, 5> kDeepseekCoder{{
    R"([\r\n])",
    R"(\s?\p{L}+)",
    R"(\s?\p{P}+)",
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N})",
}};
constexpr std::array<std::string_view, 3> kDeepseek3{{
    R"(\p{N}{1,3})",
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+)"
        R"(|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 2> kYoutu{{
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
        R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
        R"(|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N})"
        R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 3> kFalcon{{
    R"([\p{P}\$\+<=>\^~\|`]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    R"([0-9][0-9][0-9])",
}};
constexpr std::array<std::string_view, 2> kDigits{{
    R"(\p{N})",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
}};
constexpr std::array<std::string_view, 1> kBloom{{
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)",
}};
constexpr std::array<std::string_view, 2> kViking{{
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)",
    R"(\p{N})",
}};
constexpr std::array<std::string_view, 1> kTekken{{
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kGpt4o{{
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})"
        R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 2> kTinyAya{{
    kDigitGroupsToBoundary,
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})"
        R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kKimiK2{{
    R"(\p{Han}+)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 2> kSuperBpe{{
    R"(\p{N}+)",
    kDigitGroups,
}};
constexpr std::array<std::string_view, 6> kChameleon{{
    R"(<sentinel:[0-9]+>)",
    R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)",
    R"(([\t\n]|    |  ))",
    R"(\p{N})",
    R"([\p{P}!-/:-@\[-`{-~])",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
}};
constexpr std::array<std::string_view, 1> kBailingMoe{{
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kSeedCoder{{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 3> kAfmoe{{
    kNumberGroups,
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF})"
        R"(\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-)"
        R"(\x{11FF}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+)"
        R"(|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 2> kLaguna{{
    R"([^\n]+|[\n]+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kExaoneMoe{{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
        R"(|\s*[\r\n]|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 2> kMiniCpm5{{
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
}};
constexpr std::array<std::string_view, 1> kLines{{
    R"([^\n]+|[\n]+)",
}};
constexpr std::array<std::string_view, 1> kWords{{
    R"(\S+)",
}};
constexpr std::array<std::string_view, 4> kDefault{{
    R"([\p{P}\$\+<=>\^~\|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    R"(\p{N}+)",
    R"([0-9][0-9][0-9])",
}};

struct Named { std::string_view name; GgufPreTokenizer pre; };

// clang-format off
constexpr Named kTable[] = {
    {"default", {.patterns = kDefault}},
    {"", {.patterns = kDefault}},
    {"gpt-2", {.patterns = kGpt2}},
    {"phi-2", {.patterns = kGpt2}},
    {"jina-es", {.patterns = kGpt2}},
    {"jina-de", {.patterns = kGpt2}},
    {"gigachat", {.patterns = kGpt2}},
    {"jina-v2-es", {.patterns = kGpt2}},
    {"jina-v2-de", {.patterns = kGpt2}},
    {"a.x-4.0", {.patterns = kGpt2}},
    {"mellum", {.patterns = kGpt2}},
    {"modern-bert", {.patterns = kGpt2}},
    {"jina-v1-en", {.patterns = kGpt2}},
    {"jina-v2-code", {.patterns = kGpt2}},
    {"roberta-bpe", {.patterns = kGpt2}},
    {"mpt", {.patterns = kGpt2}},
    {"olmo", {.patterns = kGpt2}},
    {"jais", {.patterns = kGpt2}},
    {"trillion", {.patterns = kGpt2}},
    {"granite-docling", {.patterns = kGpt2}},
    {"exaone4", {.patterns = kGpt2}},
    {"llama3", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"llama-v3", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"llama-bpe", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"falcon3", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"falcon-h1", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"pixtral", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"midm-2.0", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"lfm2", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"jina-v5-nano", {.patterns = kLlama3, .ignore_merges = true, .add_bos = true}},
    {"dbrx", {.patterns = kLlama3}},
    {"smaug-bpe", {.patterns = kLlama3}},
    {"glm4", {.patterns = kLlama3}},
    {"chatglm-bpe", {.patterns = kLlama3}},
    {"jais-2", {.patterns = kJais2}},
    {"qwen2", {.patterns = kQwen2}},
    {"deepseek-r1-qwen", {.patterns = kQwen2}},
    {"kormo", {.patterns = kQwen2}},
    {"f2llmv2", {.patterns = kQwen2}},
    {"stablelm2", {.patterns = kQwen2}},
    {"hunyuan", {.patterns = kQwen2}},
    {"solar-open", {.patterns = kQwen2}},
    {"megrez", {.patterns = kQwen2}},
    {"grok-2", {.patterns = kQwen2}},
    {"qwen35", {.patterns = kQwen35}},
    {"deepseek-llm", {.patterns = kDeepseekLlm}},
    {"deepseek-coder", {.patterns = kDeepseekCoder}},
    {"deepseek-v3", {.patterns = kDeepseek3}},
    {"hunyuan-dense", {.patterns = kDeepseek3}},
    {"joyai-llm", {.patterns = kDeepseek3}},
    {"youtu", {.patterns = kYoutu, .ignore_merges = true}},
    {"falcon", {.patterns = kFalcon}},
    {"starcoder", {.patterns = kDigits}},
    {"refact", {.patterns = kDigits}},
    {"command-r", {.patterns = kDigits}},
    {"smollm", {.patterns = kDigits}},
    {"codeshell", {.patterns = kDigits}},
    {"exaone", {.patterns = kDigits}},
    {"minerva-7b", {.patterns = kDigits}},
    {"mellum2", {.patterns = kDigits}},
    {"poro-chat", {.patterns = kBloom}},
    {"bloom", {.patterns = kBloom}},
    {"gpt3-finnish", {.patterns = kBloom}},
    {"viking", {.patterns = kViking}},
    {"tekken", {.patterns = kTekken, .ignore_merges = true, .add_bos = true}},
    {"gpt-4o", {.patterns = kGpt4o}},
    {"llama4", {.patterns = kGpt4o}},
    {"kanana2", {.patterns = kGpt4o}},
    {"talkie", {.patterns = kGpt4o}},
    {"minimax-m2", {.patterns = kGpt4o}},
    {"granite-embed-multi-97m", {.patterns = kGpt4o, .ignore_merges = true}},
    {"tiny_aya", {.patterns = kTinyAya}},
    {"cohere2moe", {.patterns = kTinyAya}},
    {"kimi-k2", {.patterns = kKimiK2}},
    {"superbpe", {.patterns = kSuperBpe}},
    {"chameleon", {.patterns = kChameleon, .add_bos = true}},
    {"bailingmoe", {.patterns = kBailingMoe}},
    {"bailingmoe2", {.patterns = kBailingMoe}},
    {"llada-moe", {.patterns = kBailingMoe}},
    {"seed-coder", {.patterns = kSeedCoder}},
    {"afmoe", {.patterns = kAfmoe}},
    {"laguna", {.patterns = kLaguna}},
    {"exaone-moe", {.patterns = kExaoneMoe}},
    {"minicpm5", {.patterns = kMiniCpm5, .ignore_merges = true}},
    {"gemma4", {.patterns = kLines, .add_bos = true, .raw_text = true}},
    {"granite-embed-multi-311m", {.patterns = kLines, .add_bos = true, .raw_text = true}},
    {"sarvam-moe", {.patterns = kLines, .raw_text = true}},
    {"whitespace", {.patterns = kWords, .raw_text = true}},
};
// clang-format on

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  for (const Named& n : kTable)
    if (n.name == name) return &n.pre;
  return nullptr;
}

}  // namespace ridge
