//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/internal/server"
)

func newServeCommand() *cobra.Command {
	var configFile string
	var printConfig bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API",
		Long: `Serve the API on this machine.

One line on standard output says when and where: airlock ready url=http://127.0.0.1:8787
Everything else goes to standard error. Each setting can also come from the environment
(AIRLOCK_ and its name in capitals) or a YAML file; --print-config shows all of them.`,
		Example: "  airlock serve --upstream anthropic\n  airlock serve --listen 127.0.0.1:0 --data /var/lib/airlock --upstream http://127.0.0.1:8000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := server.LoadConfig(server.LoadOptions{File: configFile, Flags: changedFlags(cmd), Env: os.Environ()})
			if err != nil {
				return usageError(cmd, err)
			}
			cfg.Version = version()
			if printConfig {
				return server.PrintConfig(cmd.OutOrStdout(), cfg)
			}
			return serve(cmd, cfg)
		},
	}
	def := server.DefaultConfig()
	f := cmd.Flags()
	f.String("listen", def.Listen, "address to serve on; port 0 picks a free one")
	f.String("data", def.Data, "data folder")
	f.String("upstream", "", "the model: anthropic, a URL that serves POST /v1/messages, script, or a name from the config file")
	f.String("admin-listen", "", "address of the admin routes (default: the API's own, if that is on loopback)")
	f.Bool("allow-shared-kernel", false, "let several apps or other machines use sandboxes that share this host's kernel")
	f.StringVar(&configFile, "config", "", "YAML file with settings")
	f.BoolVar(&printConfig, "print-config", false, "print the effective settings, secrets masked, and exit")
	return cmd
}

// flagKeys names the setting behind a flag.
var flagKeys = map[string]string{
	"listen": "listen", "data": "data", "upstream": "upstream", "admin-listen": "admin_listen",
	"allow-shared-kernel": "sandbox.allow_shared_kernel",
}

func changedFlags(cmd *cobra.Command) map[string]string {
	set := make(map[string]string)
	for name, key := range flagKeys {
		if f := cmd.Flags().Lookup(name); f.Changed {
			set[key] = f.Value.String()
		}
	}
	return set
}

// serve runs until the first signal, drains, and lets a second signal end the drain.
func serve(cmd *cobra.Command, cfg server.Config) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	ctx := cmd.Context()
	s, err := server.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "airlock ready url=%s\n", s.URL()); err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for _, act := range []func(){drain, s.Cut} {
			select {
			case <-signals:
				act()
			case <-done:
				return
			}
		}
	}()
	return s.Serve(ctx, l)
}
