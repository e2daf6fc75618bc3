# SPDX-License-Identifier: Apache-2.0
# Turns every file under assets/ (and Chart.js from its Debian package) into a byte array that the library carries, so
# that a report is one file and opens without a network. Look-up by name: sluice__asset (src/base/asset.h).
function(sluice_embed_assets target)
  file(GLOB_RECURSE assets CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/assets/*)
  set(inputs ${assets})
  find_file(CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js REQUIRED NO_DEFAULT_PATH)
  list(APPEND inputs ${CHART_JS})
  set(out ${CMAKE_BINARY_DIR}/generated/assets.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DROOT=${CMAKE_SOURCE_DIR}/assets -DCHART=${CHART_JS}
            -P ${CMAKE_SOURCE_DIR}/cmake/write_assets.cmake
    DEPENDS ${inputs} ${CMAKE_SOURCE_DIR}/cmake/write_assets.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
