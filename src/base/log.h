// Log lines on stderr. Messages are whole sentences for the person who runs the program, not traces.
#pragma once
#include <fmt/format.h>
#include <string_view>

namespace ridge {

enum class LogLevel { debug, info, warn, error, off };

void set_log_level(LogLevel level);
void log_line(LogLevel level, std::string_view line);

template <class... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) { log_line(LogLevel::debug, fmt::format(f, std::forward<Args>(args)...)); }
template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) { log_line(LogLevel::info, fmt::format(f, std::forward<Args>(args)...)); }
template <class... Args>
void log_warn(fmt::format_string<Args...> f, Args&&... args) { log_line(LogLevel::warn, fmt::format(f, std::forward<Args>(args)...)); }
template <class... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) { log_line(LogLevel::error, fmt::format(f, std::forward<Args>(args)...)); }

}  // namespace ridge
