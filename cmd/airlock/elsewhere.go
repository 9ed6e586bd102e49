//go:build !linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// errLinuxOnly is the answer of every command that makes or needs sandboxes, on a system that has none of what they are
// made of.
var errLinuxOnly = errors.New("this command runs on Linux only: sandboxes are made of its namespaces and control groups\n" +
	"here airlock is a client: name a server with --url and --key, or AIRLOCK_URL and AIRLOCK_KEY")

func newServeCommand() *cobra.Command { return linuxOnly("serve", "Serve the API") }
func newDemoCommand() *cobra.Command {
	return linuxOnly("demo", "Watch code in a sandbox edit a report")
}

func newRootfsCommand() *cobra.Command { return linuxOnly("rootfs", "Make and keep root file systems") }

func newDoctorCommand() *cobra.Command {
	return linuxOnly("doctor", "Say what isolation and limits a machine gives")
}

// linuxOnly takes whatever flags the command has on Linux.
func linuxOnly(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short + " (Linux only)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errLinuxOnly },
	}
}

// startHere would serve in this process.
func (o *askOptions) startHere(context.Context, notes) (*client, func(), error) {
	return nil, nil, errLinuxOnly
}

func adviceFor(error) string { return "" }

// dataFolder may be that of a server elsewhere, on a disk that both see.
func dataFolder() (string, error) {
	if data := os.Getenv("AIRLOCK_DATA"); data != "" {
		return data, nil
	}
	if home := os.Getenv("XDG_DATA_HOME"); home != "" {
		return filepath.Join(home, "airlock"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", "airlock"), nil
}
