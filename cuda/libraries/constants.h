// Constants of a library whose header a build may lack: a list of X(our name, value, its name) makes our enumeration
// (TG_CONSTANT), and where the header is there, libraries/ checks each value against it.
#pragma once

#define TG_CONSTANT(ours, value, theirs) ours = value,
