# The page that shows a trace: tools/page_gen.py makes one text of its HTML, style and scripts, and
# a C file with that text. Sets MILLPOND_PAGE, a source of libmillpond.so.
# SPDX-License-Identifier: Apache-2.0
set(page_gen ${PROJECT_SOURCE_DIR}/tools/page_gen.py)
set(page_main ${PROJECT_SOURCE_DIR}/src/pool/trace/page/trace_page.html)
file(GLOB page_texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/pool/trace/page/trace_page*.js
     ${PROJECT_SOURCE_DIR}/src/pool/trace/page/trace_page*.css)
set(MILLPOND_PAGE ${CMAKE_BINARY_DIR}/generated/trace_page_text.c)

add_custom_command(
    OUTPUT ${MILLPOND_PAGE}
    COMMAND ${Python3_EXECUTABLE} ${page_gen} --page ${page_main} --out ${MILLPOND_PAGE}
    DEPENDS ${page_gen} ${page_main} ${page_texts}
    COMMENT "Embedding the page of a trace"
    VERBATIM)
