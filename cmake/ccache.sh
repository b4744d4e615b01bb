#!/bin/sh
# The compiler cache as CMake's launcher: ccache.sh CCACHE COMPILER ARGUMENTS...
# A precompiled header is looked up by the contents of the headers alone, never by their preprocessed text: the compiler
# compares the files (#pragma once), so that one made before a comment changed is of no use. It is made without the old one
# beside it, which would be read in place of the headers. The namespace keeps out what was cached before this was so.
# Every file that is compiled would hash its 100 MB once more; CCACHE_PCH_EXTSUM takes the checksum that is left beside it.
# The compiler's name is part of the key, and Debian's Python tells pip's builds another one (x86_64-linux-gnu-g++) of the same program.
export CCACHE_PCH_EXTSUM=1
cache=$1 compiler=$2
shift 2
plain=$(command -v g++) && [ "$plain" -ef "$compiler" ] && compiler=$plain
set -- "$cache" "$compiler" "$@"
case " $* " in
  *" c++-header "*)
    CCACHE_DEPEND=1 CCACHE_NAMESPACE=headers
    export CCACHE_DEPEND CCACHE_NAMESPACE
    previous= made=
    for argument; do
      if [ "$previous" = -o ]; then made=$argument; fi
      previous=$argument
    done
    rm -f "$made" "$made.sum"
    "$@" || exit
    sha256sum < "$made" > "$made.sum"
    exit ;;
esac
exec "$@"
