package awsemulator

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// front stands before the emulator and makes up for what it lacks of SNS and
// DynamoDB.
type front struct {
	server   *httptest.Server
	emulator string // base URL
	client   *http.Client
	pass     *httputil.ReverseProxy
}

func startFront(emulator string) *front {
	base, err := url.Parse(emulator)
	if err != nil {
		panic("awsemulator: " + err.Error()) // the emulator made it
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 256
	f := &front{
		emulator: emulator,
		client:   &http.Client{Transport: transport},
		pass: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(base)
				r.Out.Host = r.In.Host
			},
			Transport:      transport,
			ModifyResponse: mend,
			// Nobody reads the answer to a request whose client has gone.
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		},
	}
	f.server = httptest.NewServer(f)
	return f
}

func (f *front) close() {
	f.server.Close()
	f.client.CloseIdleConnections()
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != formType {
		f.pass.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	form, err := url.ParseQuery(string(body))
	if err == nil && form.Get("Action") == "PublishBatch" {
		f.publishBatch(w, r, form)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.pass.ServeHTTP(w, r)
}

const formType = "application/x-www-form-urlencoded"

const receiveMessage = "AmazonSQS.ReceiveMessage"

// mend makes an answer what AWS would have sent.
func mend(resp *http.Response) error {
	switch target := resp.Request.Header.Get("X-Amz-Target"); {
	case strings.HasPrefix(target, "DynamoDB_"):
		return withChecksum(resp)
	case target == receiveMessage && resp.StatusCode == http.StatusOK:
		return withoutNoise(resp)
	}
	return nil
}

// withChecksum adds the checksum that DynamoDB's answers have. The SDK logs a
// warning about each that lacks it.
func withChecksum(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.Header.Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
	return nil
}

// withoutNoise removes an attribute that SNS does not add, and the emulator
// does, from messages that SNS delivered to a queue: MessageId, whose value is
// the id of the message. An attribute of that name with another kind of value
// is somebody's own and stays.
func withoutNoise(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	body = quietMessages(body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// quietMessages looks for the attribute alone, because reading the whole answer
// takes long where messages are large. In a text its quotes would be escaped.
func quietMessages(body []byte) []byte {
	marker := []byte(`"MessageId":{`)
	var quiet []byte
	for {
		begin := bytes.Index(body, marker)
		if begin < 0 {
			return append(quiet, body...)
		}
		var attribute struct{ StringValue string }
		object := begin + len(marker) - 1
		reader := json.NewDecoder(bytes.NewReader(body[object:]))
		if reader.Decode(&attribute) != nil {
			return append(quiet, body...)
		}
		end := object + int(reader.InputOffset())
		if _, err := uuid.Parse(attribute.StringValue); err != nil {
			quiet, body = append(quiet, body[:end]...), body[end:]
			continue
		}
		quiet, body = append(quiet, body[:begin]...), body[end:]
		if rest, another := bytes.CutPrefix(body, []byte(",")); another {
			body = rest
		} else {
			quiet = bytes.TrimSuffix(quiet, []byte(","))
		}
	}
}

func mustJSON(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic("awsemulator: " + err.Error()) // only values of our own making
	}
	return out
}
