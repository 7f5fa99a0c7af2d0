// One subcommand of `ridge`, one file of this folder. A file defines `void add_<name>(CLI::App&)`, which declares the flags and hangs the work on the
// subcommand's callback; main.cpp lists them. A command reports the world's faults by throwing Error; main prints it and exits with 1.
#pragma once
#include <CLI/CLI.hpp>

namespace ridge {

void add_run(CLI::App& app);
void add_serve(CLI::App& app);
void add_pull(CLI::App& app);
void add_list(CLI::App& app);
void add_rm(CLI::App& app);
void add_doctor(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
CLI::App* add_bench_serve(CLI::App& bench);             // `ridge bench serve`
void add_quantize(CLI::App& app);
void add_convert(CLI::App& app);
void add_eval(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_template(CLI::App& app);
void add_completion(CLI::App& app);

}  // namespace ridge
