package interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Signs requests as the user of the system properties interop.accessKey and interop.secretKey, where they are set. */
final class Login {
    private Login() {
    }

    static RPCHook hook() {
        String accessKey = System.getProperty("interop.accessKey");
        if (accessKey == null) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(accessKey, System.getProperty("interop.secretKey")));
    }
}
