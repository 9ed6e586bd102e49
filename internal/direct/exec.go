package direct

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ExecParams is one command of the direct door.
type ExecParams struct {
	Argv           []string          `json:"argv"`
	Command        string            `json:"command"` // run by bash
	Cwd            string            `json:"cwd"`
	Env            map[string]string `json:"env"`
	Stdin          *string           `json:"stdin"`
	StdinBase64    *string           `json:"stdin_base64"`
	TimeoutSeconds *float64          `json:"timeout_seconds"`
}

// Validate checks everything that needs no sandbox; longest is the longest time limit.
func (p *ExecParams) Validate(longest time.Duration) error {
	switch {
	case len(p.Argv) > 0 && p.Command != "":
		return wire.Invalid("argv: give argv or command, not both")
	case len(p.Argv) == 0 && p.Command == "":
		return wire.Invalid("argv: give argv or command")
	case len(p.Argv) > 0 && p.Argv[0] == "":
		return wire.Invalid("argv.0: the program is empty")
	case p.Stdin != nil && p.StdinBase64 != nil:
		return wire.Invalid("stdin: give stdin or stdin_base64, not both")
	case p.Cwd != "" && !path.IsAbs(p.Cwd):
		return wire.Invalid("cwd: %q is not an absolute path", wire.Clip(p.Cwd, 64))
	}
	if name := p.withNUL(); name != "" {
		return wire.Invalid("%s: a NUL character cannot be part of a command", name)
	}
	for k, v := range p.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return wire.Invalid("env: %q cannot be an environment variable", wire.Clip(k, 64))
		}
	}
	if t := p.TimeoutSeconds; t != nil && (math.IsNaN(*t) || *t <= 0 || *t > longest.Seconds()) {
		return wire.Invalid("timeout_seconds: must be above 0 and at most %g", longest.Seconds())
	}
	return nil
}

// withNUL names the first parameter with a NUL character in it, "" when none has one.
func (p *ExecParams) withNUL() string {
	if strings.ContainsRune(p.Command, 0) {
		return "command"
	}
	if strings.ContainsRune(p.Cwd, 0) {
		return "cwd"
	}
	for i, s := range p.Argv {
		if strings.ContainsRune(s, 0) {
			return "argv." + strconv.Itoa(i)
		}
	}
	return ""
}

// timeout is 0, the longest, only when none was asked for.
func (p *ExecParams) timeout() time.Duration {
	if p.TimeoutSeconds == nil {
		return 0
	}
	return max(time.Duration(*p.TimeoutSeconds*float64(time.Second)), time.Nanosecond)
}

func (p *ExecParams) stdin() (io.Reader, error) {
	switch {
	case p.Stdin != nil:
		return strings.NewReader(*p.Stdin), nil
	case p.StdinBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*p.StdinBase64)
		if err != nil {
			return nil, wire.Invalid("stdin_base64: not base64 in the standard alphabet")
		}
		return strings.NewReader(string(b)), nil
	}
	return nil, nil
}

// exec runs one command in a turn of its own and writes its output as it comes. Processes that the command leaves behind
// live on until the sandbox ends. begin is called, with the context of the turn, just before the command starts; what it gives
// is called when the command has ended, while the turn still lasts.
func (s *Service) exec(ctx context.Context, caller tenant.Caller, id container.ID, p ExecParams, stdout, stderr io.Writer,
	begin func(context.Context) (stop func()),
) (sandbox.Result, error) {
	var none sandbox.Result
	if err := p.Validate(s.Containers.Limits.WithDefaults().Wall); err != nil {
		return none, err
	}
	stdin, err := p.stdin()
	if err != nil {
		return none, err
	}
	c := sandbox.Command{
		Argv: p.Argv, Shell: p.Command, Cwd: p.Cwd, Env: p.Env, Stdin: stdin, Stdout: stdout, Stderr: stderr, Keep: true,
		Timeout: p.timeout(),
	}
	var res sandbox.Result
	// A command's files become durable with the next pass of the background loop, a second later or as long as the disk
	// takes: waiting for the disk would cost more than most commands.
	err = s.Containers.Use(ctx, caller, id, false, func(ctx context.Context, m container.Metered) (err error) {
		defer begin(ctx)()
		res, err = m.Exec(ctx, c)
		return startError(err)
	})
	return res, err
}

// startError answers a command that could not begin with 400: no exit code is made up for it.
func startError(err error) error {
	var ge *guest.Error
	if !errors.As(err, &ge) || errors.Is(err, guest.ErrGone) {
		return err
	}
	e := wire.Invalid("argv: the command could not be started: %s", ge.Error()).WithCode("command_not_started")
	e.Err = err
	return e
}
