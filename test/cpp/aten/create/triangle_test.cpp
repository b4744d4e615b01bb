// Places of triangles against plain loops.
#include "tapegrad/aten/create/triangle.h"

#include <catch2/catch.hpp>

TEST_CASE("Rows of a triangle count the elements before", "[triangle]") {
  using namespace tapegrad::triangle;
  for (int64_t rows : {0, 3, 6})
    for (int64_t columns : {0, 1, 4, 9})
      for (int64_t offset = -8; offset <= 10; ++offset) {
        int64_t below = 0, above = 0;
        for (int64_t i = 0; i < rows; ++i) {
          REQUIRE(lower_rows(i, columns, offset).count == below);
          REQUIRE(upper_rows(i, columns, offset).count == above);
          below += lower(i, columns, offset).end - lower(i, columns, offset).begin;
          above += upper(i, columns, offset).end - upper(i, columns, offset).begin;
        }
        REQUIRE(lower_rows(rows, columns, offset).count == below);
        REQUIRE(upper_rows(rows, columns, offset).count == above);
      }
}
