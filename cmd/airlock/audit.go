package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newAuditCommand() *cobra.Command {
	var app, user, event, request string
	var since time.Duration
	cmd := adminList(&cobra.Command{
		Use:   "audit",
		Short: "List what was refused and changed, newest first",
		Long: "List what was refused and changed, newest first. Equal ones of an hour are one line with a count. No line holds a\n" +
			"credential or the content of a file.",
		Example: "  airlock audit --app invoices --since 24h\n  airlock audit --event token.refused --json\n  airlock audit --request req_01H5kV9wM3Zr2Qy7TbNc4XuA",
	}, func() string {
		from := ""
		if since > 0 {
			from = time.Now().Add(-since).UTC().Format(time.RFC3339)
		}
		who := user
		if who != "" && !strings.Contains(who, "/") && !strings.HasPrefix(who, "key ") {
			who = "airlock/" + who
		}
		return withQuery("/airlock/v1/audit", "app", app, "user", who, "event", event, "request", request, "since", from)
	}, nil, "at", "level", "event", "count", "app_id", "user", "detail", "request_id")
	cmd.Flags().StringVar(&app, "app", "", "only what concerns this app")
	cmd.Flags().StringVar(&user, "user", "", "only this user: the issuer's id (default airlock), '/' and the subject; or 'key' and the id of a key")
	cmd.Flags().StringVar(&event, "event", "", "only this event, such as token.refused")
	cmd.Flags().StringVar(&request, "request", "", "only the one of this request: its request_id, req_…; of equal ones the first")
	durationVar(cmd.Flags(), &since, "since", "only what is not older")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if since < 0 {
			return usageError(cmd, fmt.Errorf("--since: %s is below 0", since))
		}
		return run(cmd, args)
	}
	return cmd
}
