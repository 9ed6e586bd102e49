// Package internal is the map of the server, and holds the checks of the house: import policy, package comments, file
// sizes, skips, linked modules, covered cases, the compatibility register. ARCHITECTURE.md says where to look for what.
//
//	shapes and tools   wire claude db blob jwt sandbox upstream   know no tenant and no product rule
//	                   admission                                  when memory carries a sandbox
//	who                tenant audit usage                         apps, keys, Caller, Owner and the one access rule; what was refused, what was used
//	owned things       file container
//	engines            codeexec messages direct
//	edges              server, cmd/airlock, cmd/airlock-guest
//
// deps_test.go has the list of imports that may exist.
package internal
