# xgrammar, which turns grammars into token masks: the source distribution from the Python package index, fetched by name with pip, checked by hash and built here
# into a static library of its C++ core alone (its own build adds bindings, LTO and -Werror). Its place is shared by all presets: build/deps. A machine without a
# network can be given the .tar.gz there by hand; without it RIDGE_XGRAMMAR=AUTO builds without structured output, and says so.
set(RIDGE_XGRAMMAR AUTO CACHE STRING "Structured output by xgrammar: AUTO (on where its source can be had), ON or OFF")
set(xgrammar_version 0.2.8)
set(xgrammar_sha256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)

function(fetch_xgrammar deps archive why)
  if(EXISTS ${archive})
    file(SHA256 ${archive} found)
    if(found STREQUAL xgrammar_sha256)
      return()
    endif()
    file(REMOVE ${archive})
  endif()
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(NOT Python3_FOUND)
    set(${why} "no python3 to fetch it with" PARENT_SCOPE)
    return()
  endif()
  file(WRITE ${deps}/requirements.txt "xgrammar==${xgrammar_version} --hash=sha256:${xgrammar_sha256}\n")
  # pip asks a source distribution for its metadata, and would fetch and run its build tools for that. This backend answers instead, so that the one pinned file is all
  # that comes from outside.
  file(WRITE ${deps}/backend/scikit_build_core/__init__.py "")
  file(WRITE ${deps}/backend/scikit_build_core/build.py "\
import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory) / 'xgrammar-${xgrammar_version}.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\\nName: xgrammar\\nVersion: ${xgrammar_version}\\n')
    return info.name
")
  message(STATUS "Fetching xgrammar ${xgrammar_version} with pip")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${deps}/backend ${Python3_EXECUTABLE} -m pip download --quiet --no-deps --no-build-isolation --no-binary xgrammar
            --require-hashes -r ${deps}/requirements.txt -d ${deps}
    RESULT_VARIABLE failed ERROR_VARIABLE message OUTPUT_QUIET TIMEOUT 120)
  if(failed OR NOT EXISTS ${archive})
    string(REGEX REPLACE "\n.*" "" message "${message}")
    set(${why} "pip could not fetch it: ${message}" PARENT_SCOPE)
  endif()
endfunction()

# Two mistakes of its automata, found by comparing 1500 random expressions with Python's re: X? let what follows a repetition at the end of X come without X, and in an
# alternative a state that ends was merged with one that goes on.
function(mend_xgrammar source)
  file(READ ${source}/cpp/fsm.cc text)
  string(REPLACE "  FSM fsm = fsm_.Copy();
  if (!ends_.empty()) {
    fsm.AddEpsilonEdge(start_, ends_.front());
  }
  return FSMWithStartEnd(fsm, start_, ends_);" "  FSM fsm = fsm_.Copy();
  auto new_start = fsm.AddState();
  fsm.AddEpsilonEdge(new_start, start_);
  auto ends = ends_;
  ends.push_back(new_start);
  return FSMWithStartEnd(fsm, new_start, std::move(ends));" mended "${text}")
  string(REPLACE "      if (outgoing_count == 0) {
        if (result.IsEndState(i)) {" "      if (outgoing_count == 0) {
        if (union_find_set.Count(i)) continue;
        if (result.IsEndState(i)) {" mended "${mended}")
  string(LENGTH "${text}" before)
  string(LENGTH "${mended}" after)
  math(EXPR grown "${after} - ${before}")
  if(NOT grown EQUAL 111)                     # both places were found
    message(FATAL_ERROR "xgrammar ${xgrammar_version} is not what cmake/xgrammar.cmake mends (${grown})")
  endif()
  file(WRITE ${source}/cpp/fsm.cc "${mended}")
endfunction()

function(add_xgrammar)
  if(RIDGE_XGRAMMAR STREQUAL OFF OR TARGET xgrammar)
    return()
  endif()
  get_filename_component(parent ${CMAKE_BINARY_DIR} DIRECTORY)
  if(parent STREQUAL ${CMAKE_SOURCE_DIR}/build)
    set(deps ${parent}/deps)
  else()
    set(deps ${CMAKE_BINARY_DIR}/deps)
  endif()
  set(archive ${deps}/xgrammar-${xgrammar_version}.tar.gz)
  set(source ${deps}/xgrammar-${xgrammar_version})
  if(NOT EXISTS ${source}/.mended)
    file(MAKE_DIRECTORY ${deps})
    file(LOCK ${deps}/lock GUARD FUNCTION TIMEOUT 180)
    if(NOT EXISTS ${source}/.mended)
      set(why "")
      fetch_xgrammar(${deps} ${archive} why)
      if(why)
        if(RIDGE_XGRAMMAR STREQUAL ON)
          message(FATAL_ERROR "xgrammar: ${why}. Put xgrammar-${xgrammar_version}.tar.gz into ${deps}, or configure with -DRIDGE_XGRAMMAR=OFF")
        endif()
        message(WARNING "Building without structured output (JSON schemas, grammars, forced tool calls): xgrammar: ${why}")
        return()
      endif()
      file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${deps})
      mend_xgrammar(${source})
      file(TOUCH ${source}/.mended)
    endif()
  endif()

  file(GLOB_RECURSE sources ${source}/cpp/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cpp/tvm_ffi/.*\\.cc$")
  # What runs for every token and every token of the vocabulary is built with -O2; the rest, which reads grammars and schemas, with -Og, in three quarters of what -O1 takes.
  set(hot ${sources})
  list(FILTER hot INCLUDE REGEX "/(grammar_matcher|grammar_compiler|compiled_grammar|earley_parser|fsm)\\.cc$")
  list(REMOVE_ITEM sources ${hot})
  set(families ${sources})                    # they have names in common with the schema converter, and so are a unit of their own
  list(FILTER families INCLUDE REGEX "/converter_ext/")
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP readers)
  set_source_files_properties(${families} PROPERTIES UNITY_GROUP families)
  add_library(xgrammar_readers OBJECT EXCLUDE_FROM_ALL ${sources})
  add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${hot} $<TARGET_OBJECTS:xgrammar_readers>)
  target_include_directories(xgrammar SYSTEM PUBLIC ${source}/include ${source}/3rdparty/picojson ${source}/3rdparty/dlpack/include)
  set_target_properties(xgrammar_readers PROPERTIES UNITY_BUILD_MODE GROUP)
  target_include_directories(xgrammar_readers SYSTEM PRIVATE $<TARGET_PROPERTY:xgrammar,INTERFACE_INCLUDE_DIRECTORIES>)
  foreach(part xgrammar xgrammar_readers)
    target_compile_definitions(${part} PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
                               XGRAMMAR_LOG_CUSTOMIZE=1)          # its messages come to text/grammar.cpp
    target_compile_options(${part} PRIVATE -w $<IF:$<STREQUAL:${part},xgrammar>,-O2,-Og>)
    set_target_properties(${part} PROPERTIES CXX_STANDARD 17)
  endforeach()
  target_link_libraries(xgrammar PUBLIC Threads::Threads)
endfunction()
