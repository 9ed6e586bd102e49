package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Set by the linker.
var buildVersion, buildCommit, buildDate string

func version() wire.Build { return wire.NewBuild(buildVersion, buildCommit, buildDate) }

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go release",
		Example: "  airlock version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "airlock %s (commit %s, %s, %s)\n", v.Version, v.Commit, v.Date, v.Go)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
