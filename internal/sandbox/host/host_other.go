//go:build !linux

package host

import (
	"context"
	"runtime"
)

func probes() []probe {
	return []probe{{"kernel", func(context.Context, Options) Check {
		return fail(runtime.GOOS, "sandboxes need Linux; the client commands work here", "run airlock serve on a Linux machine")
	}}}
}
