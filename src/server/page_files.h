// The files of web/ as they lie in the program; the table itself is made by CMake.
#pragma once

namespace ridge {

struct PageBlob { const char *name, *begin, *end; };
extern const PageBlob kPageBlobs[];          // ends with a null name

}  // namespace ridge
