package guest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Version of the frames. Both ends come from one build, so a difference means a
// mixed-up binary and ends the connection.
const Version = 1

// FrameCost is charged to a window for each data frame beside its payload, so
// that a flood of tiny frames cannot fill the receiver's memory.
const FrameCost = 256

// codeChunk is how much of a script one frame carries.
const codeChunk = 512 << 10

// Type names what a frame means.
type Type string

// Frames to the guest.
const (
	TypeHello  Type = "hello"  // Hello; the first frame
	TypeExec   Type = "exec"   // Exec; payload is the beginning of the script
	TypeCell   Type = "cell"   // Cell; payload is the beginning of the code
	TypeCode   Type = "code"   // payload continues the script or code
	TypeCancel Type = "cancel" // end the call; it still answers
	TypePut    Type = "put"    // File; data frames and one with EOF follow
	TypeGet    Type = "get"    // File
	TypeStat   Type = "stat"   // File
	TypeList   Type = "list"   // File
	TypeMkdir  Type = "mkdir"  // File
	TypeRemove Type = "remove" // File
	TypeSync   Type = "sync"
	TypeWarm   Type = "warm" // have the fork server ready
	TypeRest   Type = "rest" // before a freeze: let go of what can be made again
	TypePing   Type = "ping"
	// TypeAnswer is a piece of an answer to a call of a cell, in Tool and the payload. EOF ends the group, in the last piece
	// or, without Tool, alone.
	TypeAnswer Type = "answer"
)

// Frames in both directions.
const (
	TypeData   Type = "data"   // payload; Stream 1 or 2 in output; EOF ends input
	TypeCredit Type = "credit" // N bytes of the window are free again; EOF: send no more
)

// Frames to the host. Exit, OK, Fault and Pong are the last of their id.
const (
	TypeReady Type = "ready" // N is Version
	TypeInfo  Type = "info"  // Entry of a Get; data frames follow
	TypeExit  Type = "exit"  // Exit
	TypeOK    Type = "ok"    // N counts data bytes; Entry of a Stat
	TypeFault Type = "fault" // Fault
	TypePong  Type = "pong"  // N is the guest's clock, nanoseconds since 1970
	// TypeTool is a piece of a call that a cell makes, in Tool and the payload. The last of a group, which then waits, has EOF.
	TypeTool Type = "tool"
)

// Frame is one message. Bytes that the sandbox's code may choose are []byte,
// because JSON strings cannot hold invalid UTF-8.
type Frame struct {
	Type   Type      `json:"t"`
	ID     uint64    `json:"i,omitempty"`
	Stream int       `json:"s,omitempty"`
	N      int64     `json:"n,omitempty"`
	EOF    bool      `json:"e,omitempty"`
	Hello  *Hello    `json:"hello,omitempty"`
	Exec   *ExecSpec `json:"exec,omitempty"`
	Cell   *CellSpec `json:"cell,omitempty"`
	File   *FileSpec `json:"file,omitempty"`
	Exit   *Exit     `json:"exit,omitempty"`
	Entry  *Entry    `json:"entry,omitempty"`
	Fault  *Fault    `json:"fault,omitempty"`
	Tool   *ToolPart `json:"tool,omitempty"`

	// Payload is owned by whoever received the frame.
	Payload []byte `json:"-"`
}

// Hello tells the guest what holds for the whole sandbox. Env is KEY=VALUE.
// Preload names the modules that the Python fork server imports; without any
// there is no fork server.
type Hello struct {
	Version int      `json:"v"`
	Env     [][]byte `json:"env,omitempty"`
	Preload []string `json:"preload,omitempty"`
	// Resume asks a guest that was restored, and has greeted another stream before, to greet again.
	Resume bool `json:"resume,omitempty"`
}

// ExecSpec is a Command on the wire. Script is the length of the shell text; 0
// means Argv.
type ExecSpec struct {
	Argv    [][]byte      `json:"argv,omitempty"`
	Script  int64         `json:"script,omitempty"`
	Cwd     []byte        `json:"cwd,omitempty"`
	Env     [][]byte      `json:"env,omitempty"`
	Stdin   bool          `json:"stdin,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	Output  int64         `json:"output"` // negative: no bound
	Keep    bool          `json:"keep,omitempty"`
}

// CellSpec is a Cell on the wire. Code is the length of the code.
type CellSpec struct {
	Code    int64         `json:"code"`
	Fresh   bool          `json:"fresh,omitempty"`
	Env     [][]byte      `json:"env,omitempty"`
	Timeout time.Duration `json:"timeout"`
	Output  int64         `json:"output"`
	Tools   []string      `json:"tools,omitempty"`
}

// ToolPart goes with a piece of a call or of an answer. The pieces of one follow each other, and all but the last have More.
// A call's payload is its input, an answer's its text; both take from the window like data.
type ToolPart struct {
	// Call counts the calls of a cell from 1.
	Call uint64 `json:"call"`
	// Tool is a place in CellSpec.Tools.
	Tool  int    `json:"tool,omitempty"`
	Raise string `json:"raise,omitempty"`
	More  bool   `json:"more,omitempty"`
}

// FileSpec is the argument of a file operation; which fields count depends on
// the frame.
type FileSpec struct {
	Path       []byte `json:"path"`
	Mode       uint32 `json:"mode,omitempty"`
	AsCode     bool   `json:"as_code,omitempty"`
	Code       bool   `json:"code,omitempty"`
	All        bool   `json:"all,omitempty"`
	NoSymlinks bool   `json:"no_symlinks,omitempty"`
	NoFollow   bool   `json:"no_follow,omitempty"`
	Max        int64  `json:"max,omitempty"`
	Depth      int    `json:"depth,omitempty"`
}

// Exit is a Result on the wire.
type Exit struct {
	Code      int           `json:"code"`
	Signal    int           `json:"signal,omitempty"`
	TimedOut  bool          `json:"timed_out,omitempty"`
	Canceled  bool          `json:"canceled,omitempty"`
	Dropped   [2]int64      `json:"dropped"`
	CPU       time.Duration `json:"cpu"`
	Wall      time.Duration `json:"wall"`
	MaxRSS    int64         `json:"max_rss"`
	Left      int           `json:"left,omitempty"`
	Started   bool          `json:"started,omitempty"`
	StateLost bool          `json:"state_lost,omitempty"`
	Holds     bool          `json:"holds,omitempty"`
}

// Entry is a FileInfo on the wire.
type Entry struct {
	Path    []byte   `json:"path"`
	Type    FileType `json:"type"`
	Size    int64    `json:"size"`
	Blocks  int64    `json:"blocks"`
	Mode    uint32   `json:"mode"`
	ModTime int64    `json:"mtime"` // nanoseconds
}

// Fault is an Error on the wire. Kind is the text of a sentinel.
type Fault struct {
	Kind   string `json:"kind,omitempty"`
	Detail string `json:"detail"`
}

// Cost is what a data frame takes from its window.
func (f *Frame) Cost() int64 { return int64(len(f.Payload)) + FrameCost }

// Reader reads frames. It is not safe for concurrent use.
type Reader struct{ r *bufio.Reader }

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read returns the next frame, io.EOF between frames at the end of the stream,
// io.ErrUnexpectedEOF inside one, or an error that matches ErrProtocol.
func (r *Reader) Read() (*Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 2 || n > MaxFrame {
		return nil, fmt.Errorf("frame of %d bytes: %w", n, ErrProtocol)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r.r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	header, payload, ok := bytes.Cut(body, []byte{'\n'})
	if !ok {
		return nil, fmt.Errorf("frame without header: %w", ErrProtocol)
	}
	f := new(Frame)
	if err := json.Unmarshal(header, f); err != nil {
		return nil, fmt.Errorf("frame header: %w", ErrProtocol)
	}
	if f.Type == "" {
		return nil, fmt.Errorf("frame without type: %w", ErrProtocol)
	}
	f.Payload = payload
	return f, nil
}

// Writer writes frames, each with one Write. It is safe for concurrent use.
type Writer struct {
	w io.Writer
	// Before, if set, runs before each Write, under the lock.
	Before func()

	mu  sync.Mutex
	buf bytes.Buffer
	enc *json.Encoder
}

// NewWriter writes frames to w.
func NewWriter(w io.Writer) *Writer {
	fw := &Writer{w: w}
	fw.enc = json.NewEncoder(&fw.buf)
	fw.enc.SetEscapeHTML(false)
	return fw
}

// Write sends a frame. An error that matches ErrTooLarge means that nothing was
// sent; any other error that the stream is unusable.
func (w *Writer) Write(f *Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Reset()
	w.buf.Write([]byte{0, 0, 0, 0})
	// Encode ends the header with the newline that the format wants.
	if err := w.enc.Encode(f); err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	w.buf.Write(f.Payload)
	n := w.buf.Len() - 4
	if n > MaxFrame {
		return fmt.Errorf("frame of %d bytes: %w", n, ErrTooLarge)
	}
	binary.BigEndian.PutUint32(w.buf.Bytes(), uint32(n))
	if w.Before != nil {
		w.Before()
	}
	_, err := w.w.Write(w.buf.Bytes())
	if w.buf.Cap() > 256<<10 {
		w.buf = bytes.Buffer{}
	}
	return err
}
