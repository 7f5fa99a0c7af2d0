// What a chat template is given, and what is said when it refuses.
#include "text/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

const Json kHi = Json::array({{{"role", "user"}, {"content", "Hi"}}});
const Json kWithSystem = Json::array({{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "Hi"}}});

std::string error_of(const ChatTemplate& chat, const Json& messages, const Json& extra = nullptr) {
  try {
    return "rendered: " + chat.render(messages, true, extra);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Chat, WithoutATemplateTheFormatIsChatMl) {
  const ChatTemplate chat({}, "m");
  EXPECT_TRUE(chat.is_fallback());
  EXPECT_FALSE(chat.source().empty());
  EXPECT_EQ(chat.render(kWithSystem, true), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.render(kHi, false), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(Chat, TheTemplateSeesWhatTransformersGivesIt) {
  const ChatTemplate chat({.template_source = "{{ [bos_token, eos_token, add_generation_prompt, tools, documents, messages[0].content] }}{{ x is defined }}",
                           .bos_token = "<s>", .eos_token = "</s>"}, "m");
  EXPECT_FALSE(chat.is_fallback());
  EXPECT_EQ(chat.render(kHi, true), "['<s>', '</s>', True, None, None, 'Hi']False");
}

TEST(Chat, ExtraVariablesWin) {
  const ChatTemplate chat({.template_source = "{{ bos_token }}{{ tools[0].name }}{{ enable_thinking }}", .bos_token = "<s>"}, "m");
  EXPECT_EQ(chat.render(kHi, true, {{"bos_token", "B"}, {"tools", {{{"name", "f"}}}}, {"enable_thinking", false}}), "BfFalse");
}

TEST(Chat, ContentInPartsIsPassedAsItIs) {
  const ChatTemplate chat({.template_source = "{% for p in messages[0].content %}{{ p.type }}={{ p.text }};{% endfor %}"}, "m");
  EXPECT_EQ(chat.render(Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}])"), true), "text=a;image=;");
}

TEST(Chat, ARefusedSystemRoleIsNamedAsTheCause) {
  const ChatTemplate chat({.template_source = "{% if messages[0].role == 'system' %}{{ raise_exception('Only user and model') }}{% endif %}{{ messages[0].content }}"}, "m");
  EXPECT_NE(error_of(chat, kWithSystem).find("does not take a system message"), std::string::npos);
  EXPECT_NE(error_of(chat, kWithSystem).find("Only user and model"), std::string::npos);
  EXPECT_EQ(chat.render(kHi, true), "Hi");
}

TEST(Chat, AnotherErrorIsNotBlamedOnTheSystemRole) {
  const ChatTemplate chat({.template_source = "{{ raise_exception('Never') }}"}, "m");
  EXPECT_EQ(error_of(chat, kWithSystem), "m, line 1: Never");
}

TEST(Chat, WrongArgumentsAreNamed) {
  const ChatTemplate chat({}, "m");
  EXPECT_NE(error_of(chat, "hello").find("messages must be a list"), std::string::npos);
  EXPECT_NE(error_of(chat, kHi, Json::array()).find("must be an object"), std::string::npos);
  EXPECT_NE(error_of(chat, Json::parse(R"([{"role": "user"}])")).find("content"), std::string::npos);
  EXPECT_THROW(ChatTemplate({.template_source = "{% if %}"}, "m"), Error);
}

}  // namespace
}  // namespace ridge
