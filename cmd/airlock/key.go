package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Short:   "Manage the API keys of apps",
		Example: "  airlock key create --app invoices --name production\n  airlock key list",
	}
	cmd.AddCommand(newKeyCreateCommand(), newKeyListCommand(), newKeyRevokeCommand(), newKeyRotateCommand())
	return cmd
}

func newKeyCreateCommand() *cobra.Command {
	var app, name, role string
	var scopes []string
	var ttl time.Duration
	cmd := adminCommand(&cobra.Command{
		Use:     "create",
		Short:   "Create an API key; it is shown this once, and with --json its id as well",
		Example: "  airlock key create --app invoices --name production --json",
		Args:    cobra.NoArgs,
	}, func(m map[string]any) string { return cell(m["key"]) }, func([]string) (string, string, any) {
		body := map[string]any{}
		if role != "" {
			body["role"] = role
		} else {
			body["app"] = app
		}
		if name != "" {
			body["name"] = name
		}
		if len(scopes) > 0 {
			body["scopes"] = scopes
		}
		if ttl > 0 {
			body["ttl_seconds"] = int64(ttl / time.Second)
		}
		return http.MethodPost, "/airlock/v1/keys", body
	})
	f := cmd.Flags()
	f.StringVar(&app, "app", "default", "id or name of the app that the key acts for")
	f.StringVar(&name, "name", "", "a name to tell keys apart")
	f.StringSliceVar(&scopes, "scopes", nil, "what more the key may do")
	f.StringVar(&role, "role", "", "make a key for administration instead: admin, operator (no other keys of this kind, no issuers) or auditor (reads)")
	cmd.MarkFlagsMutuallyExclusive("role", "app")
	cmd.MarkFlagsMutuallyExclusive("role", "scopes")
	durationVar(f, &ttl, "ttl", "how long the key lives; 0 is until it is revoked")
	return cmd
}

func newKeyListCommand() *cobra.Command {
	var app string
	var all, admins bool
	cmd := adminList(&cobra.Command{
		Use:   "list",
		Short: "List the keys, without their secrets",
		Long: "List the keys, without their secrets. Commands that hold the admin key make themselves a key that lives an hour at\n" +
			"most; those that have ended are shown with --all only. The server forgets them when their hour is over. Keys for\n" +
			"administration are shown with --admin.",
		Example: "  airlock key list --app invoices\n  airlock key list --all",
	}, func() string {
		only := ""
		if admins {
			only = "true"
		}
		return withQuery("/airlock/v1/keys", "app", app, "admin", only)
	}, func(raw json.RawMessage) bool { return all || !endedSession(raw, time.Now()) },
		"id", "app_id", "role", "name", "hint", "created_at", "expires_at", "revoked_at")
	cmd.Flags().StringVar(&app, "app", "", "only the keys of this app")
	cmd.Flags().BoolVar(&admins, "admin", false, "the keys for administration")
	cmd.MarkFlagsMutuallyExclusive("app", "admin")
	cmd.Flags().BoolVar(&all, "all", false, "also the ended keys that commands made for themselves")
	return cmd
}

// endedSession reports whether a key is one that a command made for itself and that is of no use any more.
func endedSession(raw json.RawMessage, now time.Time) bool {
	var k struct {
		Name      string     `json:"name"`
		ExpiresAt *time.Time `json:"expires_at"`
		RevokedAt *time.Time `json:"revoked_at"`
	}
	if json.Unmarshal(raw, &k) != nil || k.Name != sessionKeyName || k.ExpiresAt == nil {
		return false
	}
	return k.RevokedAt != nil || !k.ExpiresAt.After(now)
}

func newKeyRevokeCommand() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:     "revoke ID|KEY",
		Short:   "Revoke a key, given its id or itself: it is refused from the next request on",
		Example: "  airlock key revoke key_0123",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(args[0], "key_") && !strings.HasPrefix(args[0], keyPrefix) {
				return usageError(cmd, errors.New("expected the id (key_...) that 'airlock key list' shows, or the key itself"))
			}
			c, err := conn.dialAdmin()
			if err != nil {
				return err
			}
			id, err := c.revokeKey(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "revoked", oneLine(id))
			return err
		},
	}
	conn.addFlags(cmd, false)
	return cmd
}

// revokeKey ends a key. One that is given itself goes in the body: addresses are written into logs.
func (c *client) revokeKey(ctx context.Context, idOrKey string) (id string, err error) {
	var gone struct{ ID string }
	if strings.HasPrefix(idOrKey, keyPrefix) {
		err = c.call(ctx, http.MethodPost, "/airlock/v1/keys/revoke", map[string]any{"key": idOrKey}, &gone)
	} else {
		err = c.call(ctx, http.MethodDelete, "/airlock/v1/keys/"+url.PathEscape(idOrKey), nil, &gone)
	}
	return gone.ID, err
}

func newKeyRotateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rotate", Short: "Replace a key of the server itself", Example: "  airlock key rotate signing"}
	var overlap time.Duration
	var flags *cobra.Command
	signing := adminCommand(&cobra.Command{
		Use:   "signing",
		Short: "Make a new key for signing tokens; those signed before are taken for 30 days more",
		Long: "Make a new key for signing tokens. Tokens that the key before has signed are taken until the overlap is over: also those of\n" +
			"owners, so give applications a new environment meanwhile ('airlock app env').",
		Example: "  airlock key rotate signing\n  airlock key rotate signing --overlap 0s",
		Args:    cobra.NoArgs,
	}, rotatedLine,
		func([]string) (string, string, any) {
			return http.MethodPost, "/airlock/v1/keys/signing/rotate", overlapBody(flags, overlap)
		})
	flags = signing
	durationVar(signing.Flags(), &overlap, "overlap", "how long tokens of the key before are still taken (default: the server's identity.signing_overlap)")
	cmd.AddCommand(signing)
	return cmd
}

// rotatedLine says how long tokens of the signing key before are still taken.
func rotatedLine(m map[string]any) string {
	line := "signing key " + cell(m["kid"])
	end, _ := m["previous_end_at"].(string)
	if at, err := time.Parse(time.RFC3339Nano, end); err == nil && !at.After(time.Now()) {
		return line + "; tokens of the one before are refused as of now: give applications a new environment (airlock app env)"
	}
	return line + "; tokens of the one before are taken until " + cell(end)
}
