//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/server"
)

func newRootfsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rootfs",
		Short: "Make and manage the file systems that sandboxes start from",
		Long: "A root file system is a folder with the programs and libraries that code in a sandbox finds.\n" +
			"Profiles: min (a shell and Python), base (developer tools), office (documents, data and charts; the default).",
		Example: "  sudo airlock rootfs build\n  airlock rootfs list",
	}
	var dir string
	cmd.PersistentFlags().StringVar(&dir, "rootfs", rootfsDir(), "folder of root file systems")
	store := func() *rootfs.Store { return &rootfs.Store{Dir: dir} }
	cmd.AddCommand(newRootfsBuildCommand(store), newRootfsImportCommand(store), newRootfsExportCommand(store),
		newRootfsListCommand(store), newRootfsRmCommand(store))
	return cmd
}

// rootfsDir is the setting rootfs as far as it can be known without a configuration file.
func rootfsDir() string {
	return cmp.Or(os.Getenv("AIRLOCK_ROOTFS"), server.DefaultConfig().RootFS)
}

func newRootfsBuildCommand(store func() *rootfs.Store) *cobra.Command {
	var o rootfs.BuildOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build one from Debian packages, if its recipe has changed",
		Long: "Build a root file system with mmdebstrap, check that its programs run, and publish it.\n" +
			"An image whose recipe is unchanged is kept; --refresh builds again to take Debian's updates.\n" +
			"Containers keep the image they were started from. Needs root and a network.\n\n" +
			"--wheels adds Python libraries that Debian lacks: a folder of wheels and a requirements.txt with\n" +
			"a --hash for each of them.",
		Example: "  sudo airlock rootfs build\n  sudo airlock rootfs build --profile base --refresh\n" +
			"  sudo airlock rootfs build --wheels ./wheels",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return makeImage(cmd, asJSON, func(report func(rootfs.Progress)) (*rootfs.Image, error) {
				o.Progress = report
				return store().Build(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Profile, "profile", "office", "what it holds: min, base or office")
	f.StringVar(&o.Suite, "suite", "trixie", "Debian release")
	f.StringVar(&o.Wheels, "wheels", "", "folder of Python wheels with a requirements.txt that has their hashes")
	f.BoolVar(&o.Refresh, "refresh", false, "build again although the recipe is the same, for security updates")
	f.BoolVar(&asJSON, "json", false, "print the image as JSON")
	return cmd
}

func newRootfsImportCommand(store func() *rootfs.Store) *cobra.Command {
	var o rootfs.ImportOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE|OCI-LAYOUT",
		Short: "Make one from a tar, tar.gz, tar.zst or OCI layout",
		Long: "Import a root file system: an archive that 'airlock rootfs export' wrote, any tar of a Linux tree,\n" +
			"or an OCI layout (a folder or a tar of one). It needs bash, and python3 for Python cells. Needs root.",
		Example: "  sudo airlock rootfs import office.tar.zst\n  skopeo copy docker://python:3.13 oci:py && sudo airlock rootfs import py --name python",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Path = args[0]
			return makeImage(cmd, asJSON, func(report func(rootfs.Progress)) (*rootfs.Image, error) {
				o.Progress = report
				return store().Import(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "short name (default: the file's name without extensions)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the image as JSON")
	return cmd
}

// makeImage runs a build or an import with its progress and says what came of it.
func makeImage(cmd *cobra.Command, asJSON bool, do func(func(rootfs.Progress)) (*rootfs.Image, error)) error {
	start := time.Now()
	p := &imageProgress{notes: newNotes(cmd), start: start}
	img, err := do(p.show)
	p.end()
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), img)
	}
	if !p.worked {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is up to date (built %s); --refresh builds it again\n", img.Name, img.BuiltAt.Format(time.DateOnly))
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s ready in %s: %s, %d Debian packages, %d Python libraries\n%s\n",
		img.Name, time.Since(start).Round(time.Second), byteCount(img.Size), len(img.Packages), len(img.PythonLibraries), img.Path)
	return err
}

func newRootfsExportCommand(store func() *rootfs.Store) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "export NAME",
		Short:   "Write one as tar.zst",
		Example: "  sudo airlock rootfs export office\n  sudo airlock rootfs export office -o - | ssh other 'cat > office.tar.zst'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			img, err := store().Get(args[0])
			if err != nil {
				return err
			}
			if out == "-" {
				return store().Export(cmd.Context(), img.Name, cmd.OutOrStdout())
			}
			out = cmp.Or(out, img.Name+".tar.zst")
			if err := writeNew(out, func(w io.Writer) error { return store().Export(cmd.Context(), img.Name, w) }); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), out)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "where to; - is standard output (default: NAME-DIGEST.tar.zst)")
	return cmd
}

// writeNew writes a file that appears only when it is whole, and never over another.
func writeNew(path string, write func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".airlock-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

func newRootfsListCommand(store func() *rootfs.Store) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List them, the newest of each profile first",
		Example: "  airlock rootfs list\n  airlock rootfs list --json | jq -r '.[0].python_libraries[].name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := store().List()
			if err != nil {
				return err
			}
			if asJSON {
				if images == nil {
					images = []*rootfs.Image{}
				}
				return printJSON(cmd.OutOrStdout(), images)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "NAME\tPROFILE\tSUITE\tBUILT\tSIZE") // the error is kept for Flush
			for _, i := range images {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Name, i.Profile, cmp.Or(i.Suite, "-"), i.BuiltAt.Format(time.DateOnly), byteCount(i.Size))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newRootfsRmCommand(store func() *rootfs.Store) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove some that nothing uses",
		Long: "Remove root file systems. One that a running sandbox uses stays, and so does one from which containers of\n" +
			"the configured data folder or database were made: without it they cannot run code any more. --force removes\n" +
			"the latter. Other data folders on the same root file systems are not looked at.",
		Example: "  sudo airlock rootfs rm office-1a2b3c4d5e6f",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := removeRootFS(cmd.Context(), store(), name, force); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), "removed", name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it although containers were made from it")
	return cmd
}

func removeRootFS(ctx context.Context, store *rootfs.Store, name string, force bool) error {
	if force {
		return store.Remove(name)
	}
	img, err := store.Get(name)
	if err != nil {
		return err
	}
	cfg, err := server.LoadConfig(server.LoadOptions{Env: os.Environ()})
	if err != nil {
		return err
	}
	n, err := server.ContainersOn(ctx, &cfg, img.Name)
	if err != nil {
		return fmt.Errorf("look for containers on %s (--force removes it without): %w", img.Name, err)
	}
	if n > 0 {
		return fmt.Errorf("%s is in use: containers that were made from it and could not run code without it: %d; "+
			"delete them, let them expire, or use --force", img.Name, n)
	}
	return store.Remove(name)
}

// ensureImage builds the image of a profile if there is none, and says so while it does.
func ensureImage(ctx context.Context, n notes, dir, profile string) (*rootfs.Image, error) {
	store := &rootfs.Store{Dir: dir}
	if img, err := store.Get(profile); err == nil {
		return img, nil
	}
	n.line("no %s root file system yet: making it from Debian packages, once, which takes some minutes", profile)
	p := &imageProgress{notes: n, start: time.Now()}
	img, err := store.Build(ctx, rootfs.BuildOptions{Profile: profile, Progress: p.show})
	p.end()
	return img, err
}
