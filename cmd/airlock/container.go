package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func newContainerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "container",
		Short: "Create containers, run commands in them, copy files in and out",
		Example: `  airlock container create
  airlock container exec container_0123 python3 -c 'print(6*7)'
  airlock container cp report.docx container_0123:/workspace/`,
	}
	cmd.AddCommand(newContainerCreateCommand(), newContainerListCommand(), newContainerGetCommand(),
		newContainerExecCommand(), newContainerCpCommand(), newContainerForkCommand(), newContainerRmCommand())
	return cmd
}

func containerPath(id string) string { return "/airlock/v1/containers/" + url.PathEscape(id) }

func newContainerCreateCommand() *cobra.Command {
	var asJSON bool
	var files []string
	var rootfs string
	var expires time.Duration
	cmd := apiCommand(&cobra.Command{
		Use:     "create",
		Short:   "Create a container",
		Example: "  airlock container create --file report.docx --json",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
		body := map[string]any{}
		ids := []string{}
		for _, path := range files {
			f, err := c.uploadFile(ctx, newNotes(cmd), cmd.InOrStdin(), path)
			if err != nil {
				return err
			}
			ids = append(ids, f.ID)
		}
		if len(ids) > 0 {
			body["files"] = ids
		}
		if rootfs != "" {
			body["rootfs"] = rootfs
		}
		if expires > 0 {
			body["expires_after_seconds"] = int64(expires / time.Second)
		}
		var raw json.RawMessage
		if err := c.call(ctx, http.MethodPost, "/airlock/v1/containers", body, &raw); err != nil {
			return err
		}
		return printOne(cmd, asJSON, raw, func(m map[string]any) string { return cell(m["id"]) })
	})
	f := cmd.Flags()
	f.StringArrayVar(&files, "file", nil, "a file to upload and put into $INPUT_DIR; - is standard input; may be repeated")
	f.StringVar(&rootfs, "rootfs", "", "root file system (default: the server's)")
	durationVar(f, &expires, "expires-after", "how long the container lives after its last use (default: the server's)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// uploadFile is upload with a decoded answer.
func (c *client) uploadFile(ctx context.Context, n notes, stdin io.Reader, path string) (remoteFile, error) {
	var f remoteFile
	raw, err := c.upload(ctx, n, stdin, path, 0)
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(raw, &f)
}

func newContainerListCommand() *cobra.Command {
	var asJSON bool
	cmd := apiCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the containers",
		Example: "  airlock container list",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
		var rows []json.RawMessage
		err := c.list(ctx, "/airlock/v1/containers", func(raw json.RawMessage) error {
			rows = append(rows, raw)
			return nil
		})
		if err != nil {
			return err
		}
		return printList(cmd, asJSON, rows, "id", "state", "rootfs", "created_at", "last_used_at", "expires_at")
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newContainerGetCommand() *cobra.Command {
	var asJSON bool
	cmd := apiCommand(&cobra.Command{
		Use:     "get ID",
		Short:   "Show a container",
		Example: "  airlock container get container_0123 --json",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		var raw json.RawMessage
		if err := c.call(ctx, http.MethodGet, containerPath(args[0]), nil, &raw); err != nil {
			return err
		}
		return printOne(cmd, asJSON, raw, func(m map[string]any) string {
			return fmt.Sprintf("%s  %s  %s  created %s  expires %s",
				cell(m["id"]), cell(m["state"]), cell(m["rootfs"]), cell(m["created_at"]), cell(m["expires_at"]))
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newContainerForkCommand() *cobra.Command {
	var asJSON bool
	cmd := apiCommand(&cobra.Command{
		Use:   "fork ID",
		Short: "Create a container with a copy of another's files",
		Long: "Create a container that begins with the files of another as they are now, waiting for what runs in it.\n" +
			"Processes and Python variables are not copied. Afterwards the two have nothing in common.",
		Example: "  airlock container fork container_0123",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		var raw json.RawMessage
		if err := c.call(ctx, http.MethodPost, containerPath(args[0])+"/fork", nil, &raw); err != nil {
			return err
		}
		return printOne(cmd, asJSON, raw, func(m map[string]any) string { return cell(m["id"]) })
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newContainerRmCommand() *cobra.Command {
	return apiCommand(&cobra.Command{
		Use:     "rm ID...",
		Short:   "Delete containers with all that is in them",
		Example: "  airlock container rm container_0123",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		for _, id := range args {
			if err := c.call(ctx, http.MethodDelete, containerPath(id), nil, nil); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), "deleted", id); err != nil {
				return err
			}
		}
		return nil
	})
}
