// Messages and tools as OpenAI writes them, checked, so that what reaches a chat template has the types that templates expect. Other APIs translate theirs into this form.
#pragma once
#include "server/api/fields.h"
#include "server/api/job.h"

namespace ridge {

// Roles and contents; text parts are joined, image and audio parts refused.
Json read_messages(const Fields& fields, std::string_view name = "messages");
// tools, tool_choice, parallel_tool_calls.
void read_tools(ChatJob& job, const Fields& fields);
// A name that may stand in a grammar and in a template: [A-Za-z0-9_.-]{1,64}.
void check_tool_name(const std::string& name, const std::string& path);
// The text of a string or of a list of text parts of the given types; anything else is refused with what the model can take.
std::string text_of(const Json& content, const std::string& path);

}  // namespace ridge
