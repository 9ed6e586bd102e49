// Package server is the edge: it reads the settings, wires the packages together by hand, owns the table of every route,
// and starts and stops the whole.
//
// It holds no rule of any noun. What a route does is in that noun's package; what a setting means is in config.go.
//
// Life of a Server: Open takes the lock of the data folder, opens everything, sweeps what the run before left, and
// returns. Serve answers on a listener until its context ends, then drains: /readyz says 503, new turns are refused,
// running ones get Config.ShutdownGrace. Close gives everything back. Open, Serve and Close work inside another program;
// that is how `airlock ask` and `airlock demo` use it.
//
// Goroutines: one per listener, one that ends a drain, one that runs the sweeps of the stores, the background loop of the
// container service, and net/http's own.
//
// Files: config.go settings and defaults; load.go where they come from; build.go the wiring; instance.go data folder,
// lock and instance id; routes.go the table; middleware.go what surrounds a handler; gate.go turns and their drain;
// erase.go running requests of users, and the deletion of one;
// guard.go memory and disk; refuse.go set-ups that are refused; library.go what the tool description promises; sweep.go the
// sweeps of the stores; health.go; metrics.go; openapi.go; server.go life cycle.
package server
