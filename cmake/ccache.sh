#!/bin/sh
# The compiler cache as CMake's launcher: ccache.sh CCACHE COMPILER ARGUMENTS...
# A precompiled header is looked up by the contents of the headers alone, never by their preprocessed text: the compiler
# compares the files (#pragma once), so that one made before a comment changed is of no use. It is made without the old one
# beside it, which would be read in place of the headers. The namespace keeps out what was cached before this was so.
case " $* " in
  *" c++-header "*)
    CCACHE_DEPEND=1 CCACHE_NAMESPACE=headers
    export CCACHE_DEPEND CCACHE_NAMESPACE
    previous=
    for argument; do
      if [ "$previous" = -o ]; then rm -f "$argument"; fi
      previous=$argument
    done ;;
esac
exec "$@"
