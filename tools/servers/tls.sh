# shellcheck shell=bash disable=SC2154,SC2119 # servers.sh sets the variables
# The test servers' certificates, made once by openssl and used by every server:
#   ca.crt           signs server.crt (localhost, 127.0.0.1, ::1) and client.crt (CN=cert_user)
#   other-ca.crt     a stranger: nothing that the servers show is signed by it; other-client.crt is
#   NAME.pem         key and certificate in one file, as Kafka wants them
# The server's certificate leaves out 127.0.0.2 on purpose: there verify-ca passes and verify-full fails.
# Leaves and authorities are kept apart, as rustls refuses a server certificate that is an authority.

certificates() ( # certificates FOLDER
  t=$1
  exec 7>"$base/locks/tls"; flock 7
  [ ! -e "$t/complete" ] || exit 0
  command -v openssl >/dev/null || "$tools/setup.sh" package openssl
  rm -rf "$t"; mkdir -p "$t"; cd "$t"
  trap '[ $? = 0 ] || tail -n 5 log >&2' EXIT
  new_key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

  authority() {
    openssl req -x509 "${new_key[@]}" -keyout "$1.key" -out "$1.crt" -subj "/CN=tailpost $1" -days 3650 \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
  }
  leaf() { # leaf AUTHORITY FILE CN EXTENSION...
    local authority=$1 file=$2 cn=$3
    shift 3
    openssl req "${new_key[@]}" -keyout "$file.key" -subj "/CN=$cn" -out request
    printf '%s\n' basicConstraints=critical,CA:FALSE keyUsage=critical,digitalSignature "$@" >extensions
    openssl x509 -req -in request -CA "$authority.crt" -CAkey "$authority.key" -CAcreateserial -days 3650 \
      -extfile extensions -out "$file.crt"
    cat "$file.key" "$file.crt" >"$file.pem"
  }
  {
    set -e
    authority ca
    authority other-ca
    leaf ca server localhost extendedKeyUsage=serverAuth subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1
    leaf ca client cert_user extendedKeyUsage=clientAuth
    leaf other-ca other-client cert_user extendedKeyUsage=clientAuth
  } >log 2>&1
  rm -f request extensions ./*.srl
  chmod 600 ./*.key ./*.pem # PostgreSQL refuses a key that others can read
  [ "$(id -u)" != 0 ] || chown -R "$user" .
  touch complete
)
